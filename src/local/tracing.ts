/**
 * Traces for `npm start`: nothing ever waits for them. Jaeger starts beside the
 * rest when its program is there, and after it was built in the background
 * when Go is; the service sends to its port from the beginning, where what
 * comes too early is dropped.
 */
import { noteBuild, spoken } from './build-note.ts'
import { type LocalConfig, usualPorts } from './config.ts'
import { usualPort } from './free-ports.ts'
import { type Jaeger, type JaegerPorts, jaegerPorts, startJaeger } from './jaeger.ts'
import { buildJaeger, canBuildJaeger, jaegerBinary, RELEASE } from './jaeger-binary.ts'
import { standInForJaeger } from './trace-stand-in.ts'

export interface Tracing extends AsyncDisposable {
  /** Where the service sends its spans; null leaves that to its environment. */
  readonly endpoint: string | null
  /** Where traces are asked for, once Jaeger runs: `http://host:port`; null without one of this start. */
  readonly queryUrl: string | null
  /** Where Prometheus gets its span metrics, once Jaeger runs: `host:port`; null without one of this start. */
  readonly spanMetrics: string | null
  /** One phrase for the summary: an address, or what is going on. */
  state(): string
}

export interface TracingOptions {
  readonly config: LocalConfig
  /** Folder of Jaeger's log and pid file; null where another start has it: then none is started. */
  readonly dir: string | null
  readonly say: (line: string) => void
}

/** Begins what can be begun, and says so. Never throws: a stack without traces is still one. */
export async function beginTracing({ config, dir, say }: TracingOptions): Promise<Tracing> {
  if (config.tracesOff) return withoutJaeger('none started: the environment switches traces off')
  if (config.otlpEndpoint !== null) return withoutJaeger(`none started: traces go to ${config.otlpEndpoint}`)
  if (dir === null) return withoutJaeger('none beside another start; OTEL_EXPORTER_OTLP_ENDPOINT names its own')
  const binary = await jaegerBinary()
  if (binary === null && !(await canBuildJaeger())) {
    say('Jaeger: not installed, and no Go to build it. Traces are off; install Go, or set OTEL_EXPORTER_OTLP_ENDPOINT.')
    return withoutJaeger('not installed')
  }
  const ports = await portsToUse()
  const ending = new AbortController()
  let jaeger: Jaeger | null = null
  let state =
    binary === null ? 'being built in the background, some minutes this once; no traces until then' : 'starting'
  const build = async () => {
    say('Jaeger: building it in the background, which takes some minutes, this once; there are no traces until then')
    await using _note = await noteBuild(dir)
    await using _standIn = await standIn(ports)
    return await buildJaeger({
      signal: ending.signal,
      onProgress({ elapsedMs, packageCount, logFile }) {
        const so = `being built for ${spoken(elapsedMs)}, ${packageCount} packages so far`
        state = `${so}; no traces until then`
        say(`Jaeger: ${so} (${logFile})`)
      },
    })
  }
  let absent: AsyncDisposable | null = null
  const begin = async () => {
    const program = binary ?? (await build())
    if (ending.signal.aborted) return
    jaeger = await startJaeger({ binary: program, dir, ports })
    state = program === RELEASE ? jaeger.url : `${jaeger.url}/api/v3 (built here: all of the API, and no pages)`
    say(`Jaeger: ready at ${state}`)
    await Promise.race([jaeger.failed, aborted(ending.signal)])
  }
  const running = begin().catch(async (error: Error) => {
    state = 'not running'
    if (ending.signal.aborted) return
    absent = await standIn(ports)
    say(`${error.message}\nThe rest goes on without traces.`)
  })
  return {
    endpoint: `http://127.0.0.1:${ports.otlpHttp}`,
    queryUrl: `http://127.0.0.1:${ports.query}`,
    spanMetrics: `127.0.0.1:${ports.spanMetrics}`,
    state: () => state,
    async [Symbol.asyncDispose]() {
      ending.abort()
      await running
      await jaeger?.stop()
      await absent?.[Symbol.asyncDispose]()
    },
  }
}

function withoutJaeger(state: string): Tracing {
  return {
    endpoint: null,
    queryUrl: null,
    spanMetrics: null,
    state: () => state,
    [Symbol.asyncDispose]: async () => {},
  }
}

/** Without one the service only warns, of what is known. */
async function standIn({ otlpHttp }: JaegerPorts): Promise<AsyncDisposable> {
  return await standInForJaeger(otlpHttp).catch(() => ({ [Symbol.asyncDispose]: async () => {} }))
}

/** The ports that people know where they are free. */
async function portsToUse(): Promise<JaegerPorts> {
  return { ...(await jaegerPorts()), query: await usualPort(usualPorts.jaeger) }
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
}
