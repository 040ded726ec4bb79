/** `npm run observe` as a user has it, over something that serves metrics and sends spans as the service does. */
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeAll, expect, test } from '@jest/globals'
import { parse } from 'yaml'
import { freePorts, portIsFree } from '../../src/local/free-ports.ts'
import { onPath } from '../../src/local/on-path.ts'
import { type Program, runProgram, untilGone } from '../local/processes.ts'
import { BUILD_MS, jaegerForTests, withJaeger } from '../support/telemetry/jaeger.ts'
import { untilTraced } from '../support/telemetry/jaeger-traces.ts'
import { sendSpan } from '../support/telemetry/one-span.ts'
import { until } from '../support/telemetry/wait.ts'

const STARTED = 'Ctrl-C ends what was started here'
const read = async (path: string) => parse(await readFile(new URL(`../../${path}`, import.meta.url), 'utf8'))

// Where either is missing this is skipped, and shown as such; in CI that is a failure.
const withBoth = onPath('prometheus') !== null || process.env.CI ? withJaeger : test.skip
beforeAll(async () => {
  if (withBoth !== test.skip) await jaegerForTests()
}, BUILD_MS)

withBoth('Jaeger takes the spans, Prometheus the metrics, with our rules, and Ctrl-C leaves nothing', async () => {
  await using where = await place()
  await using service = await serve(() => 'outbox_pending_count{outbox_name="orders"} 0\n')
  const [otlp, jaegerPort, prometheusPort] = (await freePorts(3)).map(String)
  const endpoint = `http://127.0.0.1:${otlp}`
  const env = { ...where.env, ADMIN_PORT: service.port, OTEL_EXPORTER_OTLP_ENDPOINT: endpoint }
  const ports = ['--jaeger-port', `${jaegerPort}`, '--prometheus-port', `${prometheusPort}`]

  await using observe = runProgram('scripts/observe.ts', ['--json', ...ports], env)
  await observe.says('\n}\n')

  const shown = jsonIn(observe)
  expect(shown.jaeger.url).toBe(`http://127.0.0.1:${jaegerPort}`)
  expect(shown.prometheus.url).toBe(`http://127.0.0.1:${prometheusPort}`)
  await until('Both targets', async () => {
    const { activeTargets } = await ask(shown.prometheus.url, 'targets')
    const found = activeTargets.map(({ labels, health }) => `${labels.job} ${health}`)
    return found.sort().join() === 'jaeger up,orders up' ? true : null
  })
  const { groups } = await ask(shown.prometheus.url, 'rules')
  expect(rulesIn(groups)).toEqual(rulesIn((await read('observability/alerts.yaml')).groups))
  const traceId = '0af7651916cd43dd8448eb211c80319c'
  expect(await sendSpan(endpoint, traceId)).toBe(200)
  await untilTraced(shown.jaeger.url ?? '', traceId, (spans) => spans.some(({ name }) => name === 'create orders'))

  const pids = await where.pids()
  expect(pids.map(([name]) => name)).toEqual(['jaeger', 'prometheus'])
  observe.kill('SIGINT')
  expect(await observe.ended).toBe(0)
  for (const [name, pid] of pids) await untilGone(pid, name)
  for (const port of [otlp, jaegerPort, prometheusPort]) expect(await portIsFree(Number(port))).toBe(true)
})

test('where no program, no engine and no compiler is, it says for each what would help, and ends', async () => {
  await using where = await place()

  await using observe = runProgram('scripts/observe.ts', [], where.bare)

  expect(await observe.ended).toBe(1)
  expect(observe.output()).toMatch(/^Jaeger +is not here: put a release .+ on the path, install Go, /m)
  expect(observe.output()).toMatch(/^Prometheus +is not here: install it \(Debian: apt-get install prometheus/m)
  expect(observe.output()).not.toContain(STARTED)
})

test('the Jaeger of npm start is shown, and no second one is started', async () => {
  await using where = await place()
  await using jaeger = await serve(() => '{}')
  const spoken = [`JAEGER_URL=${jaeger.url}`, 'OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1']
  await writeFile(join(where.dir, 'env'), spoken.join('\n'))

  await using observe = runProgram('scripts/observe.ts', [], where.bare)

  expect(await observe.ended).toBe(1)
  expect(observe.output()).toMatch(new RegExp(`^Jaeger +${jaeger.url}\n +that of npm start$`, 'm'))
})

test('a service that sends elsewhere is told which variable brings its traces here', async () => {
  await using where = await place()
  const endpoint = ['--otlp-endpoint', 'https://collector.example/otlp']

  await using observe = runProgram('scripts/observe.ts', endpoint, where.bare)

  expect(await observe.ended).toBe(1)
  expect(observe.output()).toMatch(
    /^Jaeger .*https:\/\/collector\.example\/otlp.*OTEL_EXPORTER_OTLP_ENDPOINT=http:\/\/127\.0\.0\.1:4318$/m,
  )
})

test('a port that somebody else has is named, and that one not shown for ours', async () => {
  await using where = await place()
  await using other = await serve(() => '{}')

  await using observe = runProgram('scripts/observe.ts', ['--prometheus-port', other.port], where.bare)

  expect(await observe.ended).toBe(1)
  expect(observe.output()).toMatch(/^Port \d+ is taken\. Give another with --prometheus-port/)
})

test('Ctrl-C gives up what takes long: Jaeger is no longer built', async () => {
  await using where = await place()
  const [otlp] = await freePorts(1)
  const pidFile = join(where.dir, 'go.pid')
  const go = `[ "$1" = version ] && exit; echo $$ > '${pidFile}'; exec /bin/sleep 600`
  const PATH = await where.programs({ go, nice: 'shift 2; exec "$@"' })

  await using observe = runProgram('scripts/observe.ts', ['--otlp-endpoint', `http://127.0.0.1:${otlp}`], {
    ...where.env,
    PATH,
    XDG_CACHE_HOME: where.dir,
  })
  await observe.says('Jaeger       building it')
  const pid = await until('The compiler', async () => Number(await readFile(pidFile, 'utf8').catch(() => '')) || null)
  observe.kill('SIGINT')

  expect(await observe.ended).toBe(0)
  await untilGone(pid, 'sleep')
})

// Elsewhere containers do not share the machine's network.
const onLinux = process.platform === 'linux' ? test : test.skip

onLinux(
  'where a container engine is, all three run from the images of compose.yaml, once, and end with it',
  async () => {
    await using where = await place()
    const engine = fileURLToPath(new URL('../support/telemetry/container-engine.ts', import.meta.url))
    const PATH = await where.programs({ docker: `exec '${process.execPath}' '${engine}' "$@"` })
    const [otlp] = await freePorts(1)
    const env = {
      ...where.env,
      PATH,
      XDG_CACHE_HOME: where.dir,
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${otlp}`,
      TEST_ENGINE_LOG: join(where.dir, 'calls'),
    }

    await using observe = runProgram('scripts/observe.ts', [], env)
    await observe.says(STARTED)
    await using second = runProgram('scripts/observe.ts', [], env)

    expect(await second.ended).toBe(1)
    expect(second.output()).toContain(`Another npm run observe uses ${join(where.dir, 'observe')}`)

    const calls = (await readFile(env.TEST_ENGINE_LOG, 'utf8')).trim().split('\n')
    const { services } = await read('compose.yaml')
    for (const name of ['jaeger', 'prometheus', 'grafana']) {
      const { image } = services[name]
      expect(calls).toContain(`pull --quiet ${image}`)
      expect(calls).toContainEqual(expect.stringMatching(new RegExp(`^run --rm --network host .* ${image}`)))
    }
    expect(observe.output()).toMatch(/^Grafana +http:.*\/d\/outbox-overview$/m)
    const pids = await where.pids()
    expect(pids.map(([name]) => name)).toEqual(['jaeger', 'prometheus', 'grafana'])
    observe.kill('SIGTERM')
    expect(await observe.ended).toBe(0)
    for (const [, pid] of pids) await untilGone(pid, engine)
  },
)

/** A folder in place of `.data`, and an environment that says nothing of any service and has no container engine. */
async function place() {
  const dir = await mkdtemp(join(tmpdir(), 'observe-'))
  /** A path with these programs, each a script, and no others. */
  async function programs(scripts: Readonly<Record<string, string>>): Promise<string> {
    const bin = await mkdtemp(join(dir, 'bin-'))
    for (const [name, script] of Object.entries(scripts))
      await writeFile(join(bin, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 })
    return bin
  }
  const env = {
    DATA_DIR: dir,
    PATH: `${await programs({ docker: 'exit 1', podman: 'exit 1' })}${delimiter}${process.env.PATH}`,
    ADMIN_PORT: '',
    OTEL_EXPORTER_OTLP_ENDPOINT: '',
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: '',
    PROMETHEUS_PORT: '',
    GRAFANA_PORT: '',
  }
  return {
    dir,
    env,
    /** The same with no program at all, and no Jaeger that was built before. */
    bare: { ...env, PATH: '', XDG_CACHE_HOME: dir },
    programs,
    /** What was started, by its name. */
    async pids(): Promise<[string, number][]> {
      const names = ['jaeger', 'prometheus', 'grafana']
      const found = names.map(async (name) => {
        const text = await readFile(join(dir, 'observe', `${name}.pid`), 'utf8').catch(() => '0')
        return [name, Number(text)] as [string, number]
      })
      return (await Promise.all(found)).filter(([, pid]) => pid > 0)
    },
    [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }),
  }
}

/** Answers everything on a port of its own. */
async function serve(answer: () => string) {
  const server: Server = createServer((_, response) => response.end(answer())).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    port: String(port),
    url: `http://127.0.0.1:${port}`,
    async [Symbol.asyncDispose]() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}

function jsonIn(program: Program): Record<'jaeger' | 'prometheus' | 'grafana', { readonly url: string | null }> {
  const [json = ''] = /^\{$[\s\S]*^\}$/m.exec(program.output()) ?? []
  return JSON.parse(json)
}

type Groups = readonly {
  readonly name: string
  /** A name as Prometheus tells it, or one of the other two as the file has it. */
  readonly rules: readonly { readonly name?: string; readonly alert?: string; readonly record?: string }[]
}[]

interface PrometheusAnswer {
  readonly activeTargets: readonly { readonly labels: { readonly job: string }; readonly health: string }[]
  readonly groups: Groups
}

function rulesIn(groups: Groups): readonly string[] {
  const named = groups.flatMap(({ name: group, rules }) =>
    rules.map(({ name, alert, record }) => `${group}: ${name ?? alert ?? record}`),
  )
  return named.sort()
}

async function ask(url: string | null, what: 'targets' | 'rules'): Promise<PrometheusAnswer> {
  const response = await fetch(`${url}/api/v1/${what}`)
  return ((await response.json()) as { data: PrometheusAnswer }).data
}
