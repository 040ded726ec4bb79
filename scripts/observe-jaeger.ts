/** Which Jaeger `npm run observe` shows: the one that has the service's traces already, or else one of its own where the service sends them. */
import { join } from 'node:path'
import { buildUnderWay, spoken } from '../src/local/build-note.ts'
import { usualPorts } from '../src/local/config.ts'
import { type Engine, orContainers, provideImage } from '../src/local/container-engine.ts'
import { portIsFree } from '../src/local/free-ports.ts'
import { type Jaeger, type JaegerPorts, jaegerPorts, startJaeger } from '../src/local/jaeger.ts'
import { buildJaeger, canBuildJaeger, jaegerBinary, RELEASE } from '../src/local/jaeger-binary.ts'
import { answersWell, type Runnable } from '../src/local/runnable.ts'
import { StackError } from '../src/local/stack-error.ts'
import { dataDir, lastStart } from './last-start.ts'
import { portFor } from './observe-port.ts'

/** Where a service sends its spans that is told nothing but the standard's own words. */
const USUAL_ENDPOINT = 'http://127.0.0.1:4318'
const USUAL_SPAN_METRICS = '127.0.0.1:8889'

/** What there is to do about it, decided before anything is started. */
export type JaegerPlan =
  | { readonly kind: 'there'; readonly url: string; readonly note: string; readonly spanMetrics: string | null }
  | { readonly kind: 'none'; readonly note: string }
  | { readonly kind: 'start'; readonly note: string; readonly ports: JaegerPorts; readonly spanMetrics: string }

export interface JaegerWanted {
  /** Where the service sends its spans, as far as anybody has said. */
  readonly endpoint: string | undefined
  /** The port of its pages, as far as anybody has said. */
  readonly port: number | null
  readonly engine: Engine | null
}

/** Starts nothing. Throws {@link StackError} where the endpoint is no address, or the port is taken. */
export async function planJaeger({ endpoint, port, engine }: JaegerWanted): Promise<JaegerPlan> {
  const last = lastStart()
  if (last.JAEGER_URL && (endpoint ?? last.OTEL_EXPORTER_OTLP_ENDPOINT) === last.OTEL_EXPORTER_OTLP_ENDPOINT)
    return await ofLastStart(last.JAEGER_URL, last.JAEGER_SPAN_METRICS || USUAL_SPAN_METRICS)
  const where = endpoint ?? USUAL_ENDPOINT
  if (!URL.canParse(where)) throw new StackError(`${where} is no address: --otlp-endpoint begins with http://`)
  const { protocol, hostname, port: otlpPort } = new URL(where)
  if (protocol !== 'http:' || !['127.0.0.1', 'localhost'].includes(hostname)) {
    const note = `the service sends its spans to ${where}; for one here start it with ${variable(USUAL_ENDPOINT)}`
    return { kind: 'none', note }
  }
  const otlpHttp = Number(otlpPort || 80)
  if (!(await portIsFree(otlpHttp))) return await whoeverIsThere(where, `http://127.0.0.1:${port ?? usualPorts.jaeger}`)
  if (!(await canBeHad(engine))) {
    const ways = 'put a release (jaegertracing.io) on the path, install Go, which builds it'
    return { kind: 'none', note: `is not here: ${ways}${orContainers(engine)}` }
  }
  const ports = {
    ...(await jaegerPorts()),
    otlpHttp,
    query: await portFor({ option: '--jaeger-port', given: port, usual: usualPorts.jaeger }),
  }
  const note = endpoint
    ? `takes the service's spans at ${where}`
    : `has the traces of a service that was started with ${variable(where)}, and of no other`
  return { kind: 'start', note, ports, spanMetrics: `127.0.0.1:${ports.spanMetrics}` }
}

/** That of `npm start`, which starts it beside the rest, or after it was built. */
async function ofLastStart(url: string, spanMetrics: string): Promise<JaegerPlan> {
  if (await answersAsJaeger(url)) return { kind: 'there', url, note: 'that of npm start', spanMetrics }
  const buildMs = await buildUnderWay(join(dataDir, 'jaeger'))
  if (buildMs !== null) {
    const note = `npm start is building it, for ${spoken(buildMs)} so far; no traces until then`
    return { kind: 'there', url, note, spanMetrics }
  }
  const note = `that of npm start does not answer at ${url}: what it has printed says why; --otlp-endpoint says where another service sends its spans`
  return { kind: 'none', note }
}

async function whoeverIsThere(endpoint: string, url: string): Promise<JaegerPlan> {
  if (await answersAsJaeger(url)) {
    const spanMetrics = (await answersWell(`http://${USUAL_SPAN_METRICS}/metrics`)) ? USUAL_SPAN_METRICS : null
    return { kind: 'there', url, note: 'was there already', spanMetrics }
  }
  const note = `${endpoint}, where the service sends its spans, is taken, and no Jaeger answers at ${url}: --jaeger-port names its own`
  return { kind: 'none', note }
}

function variable(endpoint: string): string {
  return `OTEL_EXPORTER_OTLP_ENDPOINT=${endpoint}`
}

async function answersAsJaeger(url: string): Promise<boolean> {
  return await answersWell(`${url}/api/v3/services`)
}

/** Whether it has pages to look at: what is built from the module has a placeholder. */
export async function hasPages(url: string): Promise<boolean> {
  return await fetch(url, { signal: AbortSignal.timeout(2_000) }).then(
    async (response) => !(await response.text()).includes('placeholder for the Jaeger UI'),
    () => false,
  )
}

export interface StartOptions {
  readonly engine: Engine | null
  readonly ports: JaegerPorts
  readonly prometheusUrl: string
  readonly dir: string
  /** Aborts: give up what takes long. */
  readonly signal: AbortSignal
  /** Takes progress, a line at a time. */
  readonly say: (line: string) => void
}

/** Starts one that the plan has found a way to. Throws {@link StackError} when the last way fails. */
export async function startOwnJaeger({ ports, prometheusUrl, dir, ...how }: StartOptions): Promise<Jaeger> {
  return await startJaeger({ binary: await obtain(how), dir, ports, prometheusUrl })
}

async function canBeHad(engine: Engine | null): Promise<boolean> {
  return engine?.answers || (await jaegerBinary()) !== null || (await canBuildJaeger())
}

/** A release and the image have pages, so they go before what is built here. */
async function obtain({ engine, signal, say }: Pick<StartOptions, 'engine' | 'signal' | 'say'>): Promise<Runnable> {
  const here = await jaegerBinary()
  if (here === RELEASE) return here
  if (engine?.answers) {
    const fetched = provideImage({ engine: engine.program, service: 'jaeger', signal, say })
    const image = await fetched.catch((error: Error) => {
      if (signal.aborted) throw error
      say(error.message)
      return null
    })
    if (image !== null) return image
  }
  if (here !== null) return here
  say('building it, which takes some minutes, this once')
  return await buildJaeger({
    signal,
    onProgress: ({ elapsedMs, packageCount, logFile }) =>
      say(`being built for ${spoken(elapsedMs)}, ${packageCount} packages so far (${logFile})`),
  })
}
