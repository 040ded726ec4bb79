/** A Kafka node of the test's own whose clients all pass a proxy. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Kafka, startKafka } from '../../../src/local/kafka.ts'
import { type KafkaProxy, startKafkaProxy } from './kafka-proxy.ts'

/** The node, the proxies before its brokers in order of their ids, and how to reach it through them. */
export interface ProxiedKafka extends AsyncDisposable {
  readonly kafka: Kafka
  readonly proxies: readonly KafkaProxy[]
  /** `host:port` of the proxies. */
  readonly brokers: readonly string[]
}

/** Starts `nodes` brokers behind a proxy each, with `settings` over the usual ones. */
export async function startProxiedKafka(
  nodes: 1 | 3 = 1,
  settings: Readonly<Record<string, string | number | boolean>> = {},
): Promise<ProxiedKafka> {
  await using failed = new AsyncDisposableStack()
  const dir = await mkdtemp(join(tmpdir(), 'graphql-outbox-test-'))
  failed.defer(() => rm(dir, { recursive: true, force: true }))
  const proxies = await Promise.all(Array.from({ length: nodes }, () => startKafkaProxy()))
  for (const proxy of proxies) failed.use(proxy)
  const kafka = await startKafka({
    dir,
    nodes,
    advertised: Object.fromEntries(proxies.map(({ port }, at) => [at + 1, port])),
    heapMb: 384,
    jvm: ['-XX:TieredStopAtLevel=1'],
    settings,
  })
  failed.defer(() => kafka.kill())
  for (const [at, proxy] of proxies.entries()) proxy.forwardTo(kafka.nodes[at]?.port ?? 0)
  const stack = failed.move()
  return {
    kafka,
    proxies,
    brokers: proxies.map(({ port }) => `127.0.0.1:${port}`),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  }
}
