/** A trace as the demo shows it: waited for, then drawn; or a sentence on why there is none. */
import { join } from 'node:path'
import { styleText } from 'node:util'
import { buildUnderWay, spoken } from '../src/local/build-note.ts'
import { dataDir } from './last-start.ts'
import { describeWay, drawTimeline, type Paint } from './timeline.ts'
import { fetchTrace, type SpanNode } from './trace.ts'

/** Which trace, and where. */
export interface Wanted {
  readonly jaeger: string
  readonly traceId: string
  /** The event whose way is followed; `null` takes the first of the trace. */
  readonly eventId: string | null
}

export interface Found {
  readonly trace: readonly SpanNode[] | null
  /** Why there is none, or less than all of it. */
  readonly note: string | null
}

/** Waits for the trace as long as parts of it may be on their way, 15 s at most. */
export async function findTrace({ jaeger, traceId, eventId }: Wanted): Promise<Found> {
  const trace = await withProgress('Waiting for its spans to arrive at Jaeger', (step) =>
    fetchTrace(jaeger, traceId, eventId, step),
  )
  if (trace === null) return { trace, note: await whyNobodyAnswers(jaeger) }
  if (trace.roots.length > 0)
    return { trace: trace.roots, note: trace.whole ? null : 'Some spans of this trace have not arrived at Jaeger.' }
  return { trace: null, note: `Jaeger at ${jaeger} has no trace ${traceId}. ${whyUnknown(eventId)}` }
}

/** Prints it, in colours where standard output is a terminal that wants them. */
export function showTrace({ traceId, eventId }: Pick<Wanted, 'traceId' | 'eventId'>, { trace, note }: Found): void {
  if (trace) {
    const way = describeWay(trace, eventId)
    console.log(`\nTrace ${traceId}`)
    if (way !== null) console.log(way)
    console.log(`\n${drawTimeline(trace, { columns: process.stdout.columns ?? 100, paint }).join('\n')}`)
  }
  if (note !== null) console.log(`\n${note}`)
}

/** Who follows an event has just made it, so this is another Jaeger; who names a trace may have an old one. */
function whyUnknown(eventId: string | null): string {
  return eventId === null
    ? 'Jaeger keeps traces in memory while npm start runs: those of an earlier start are gone.'
    : 'npm start prints where its Jaeger is: name it with --jaeger.'
}

async function whyNobodyAnswers(jaeger: string): Promise<string> {
  const buildMs = await buildUnderWay(join(dataDir, 'jaeger'))
  if (buildMs === null) return `No Jaeger answers at ${jaeger}; npm start brings one where Go is installed.`
  return `No time line yet: npm start is still building Jaeger, for ${spoken(buildMs)} so far, and says when it is ready. Run this again then.`
}

const colors: Readonly<Record<string, Parameters<typeof styleText>[0]>> = {
  'orders-api': 'cyan',
  'outbox-relay': 'yellow',
  'orders-summary': 'green',
}

/** `styleText` asks the terminal, and `NO_COLOR`. */
const paint: Paint = (service, text) => styleText(colors[service] ?? 'magenta', text, { stream: process.stdout })

/** Shows on standard error that something is waited for, and leaves nothing behind in a terminal. */
async function withProgress<T>(what: string, work: (step: () => void) => Promise<T>): Promise<T> {
  const { stderr } = process
  let steps = 0
  stderr.write(`${what} `)
  try {
    return await work(() => {
      steps += 1
      if (steps % STEPS_PER_DOT === 0) stderr.write('.')
    })
  } finally {
    stderr.write(stderr.isTTY ? '\r\x1b[K' : '\n')
  }
}

const STEPS_PER_DOT = 2
