/** A Kafka of the test's own whose clients all pass a proxy. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Kafka, type SecureOptions, startKafka } from '../../../src/local/kafka.ts'
import { type KafkaProxy, startKafkaProxy } from './kafka-proxy.ts'

/** The cluster, the proxies before its brokers in order of their ids, and how to reach it through them. */
export interface ProxiedKafka extends AsyncDisposable {
  readonly kafka: Kafka
  readonly proxies: readonly KafkaProxy[]
  /** `host:port` of the proxies. */
  readonly brokers: readonly string[]
}

export interface ProxiedKafkaOptions {
  /** Where it keeps its files, and leaves them. @defaultValue a folder that goes with it */
  readonly dir?: string
  /**
   * The proxies stand before a listener with TLS and SCRAM and speak TLS alone;
   * `kafka.brokers` leads past them, in clear. @defaultValue in clear, and nothing leads past them
   */
  readonly secure?: SecureOptions | undefined
}

/** Starts `nodes` brokers behind a proxy each, with `settings` over the usual ones. */
export async function startProxiedKafka(
  nodes: 1 | 3 = 1,
  settings: Readonly<Record<string, string | number | boolean>> = {},
  { dir, secure }: ProxiedKafkaOptions = {},
): Promise<ProxiedKafka> {
  await using failed = new AsyncDisposableStack()
  const proxies = await Promise.all(
    Array.from({ length: nodes }, () => startKafkaProxy(secure ? { tls: secure.certificate } : {})),
  )
  for (const proxy of proxies) failed.use(proxy)
  const advertised = Object.fromEntries(proxies.map(({ port }, at) => [at + 1, port]))
  const kafka = await startKafka({
    dir: dir ?? (await temporaryDir(failed)),
    nodes,
    ...(secure ? { secure: { ...secure, advertised } } : { advertised }),
    heapMb: 384,
    jvm: ['-XX:TieredStopAtLevel=1'],
    settings,
  })
  failed.defer(() => kafka.kill())
  for (const [at, proxy] of proxies.entries()) {
    const node = kafka.nodes[at]
    proxy.forwardTo((secure ? node?.securePort : node?.port) ?? 0)
  }
  const stack = failed.move()
  return {
    kafka,
    proxies,
    brokers: secure ? kafka.secureBrokers : kafka.brokers,
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  }
}

async function temporaryDir(scope: AsyncDisposableStack): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'graphql-outbox-test-'))
  scope.defer(() => rm(dir, { recursive: true, force: true }))
  return dir
}
