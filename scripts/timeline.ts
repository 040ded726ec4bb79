/**
 * A trace drawn on a time line, at most 100 columns wide: a part for each service that
 * goes on by itself, a bar for each span, and one line that sums the way up.
 */
import type { SpanNode } from './trace.ts'

/** Puts `text` into the colour that stands for `service`; plain where there are no colours. */
export type Paint = (service: string, text: string) => string

const NAME_COLUMNS = 42
/** Beside the bars: names, a gap and durations. */
const OTHER_COLUMNS = NAME_COLUMNS + 2 + 10
const BAR_COLUMNS = { least: 20, most: 44 } as const

/** How a time line is drawn. */
interface Drawing {
  readonly totalMs: number
  readonly barColumns: number
  readonly paint: Paint
}

/** Milliseconds below which there is nothing to tell. */
const LEAST_MS = 0.05
const EIGHTHS = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉']

/**
 * The trace's parts in order of start, each under the name of its service, in
 * lines of at most `columns`, as far as names leave room.
 */
export function drawTimeline(
  roots: readonly SpanNode[],
  { columns, paint }: { columns: number; paint: Paint },
): readonly string[] {
  const totalMs = Math.max(...roots.flatMap((root) => flatten(root)).map(endOf), 1)
  const barColumns = Math.max(BAR_COLUMNS.least, Math.min(columns - OTHER_COLUMNS, BAR_COLUMNS.most))
  const drawing: Drawing = { totalMs, barColumns, paint }
  const parts = roots.flatMap(partsOf).toSorted((a, b) => a.head.startMs - b.head.startMs)
  return [
    `${' '.repeat(NAME_COLUMNS + 2)}0${text(totalMs).padStart(barColumns - 1)}`,
    ...parts.flatMap(({ head, afterwards }, index) => [
      // One heading for what a service does in a row.
      ...(parts[index - 1]?.head.service === head.service ? [] : [heading(head, afterwards, paint)]),
      ...draw(head, { first: '  ', rest: '  ' }, drawing),
    ]),
  ]
}

function heading({ service }: SpanNode, afterwards: boolean, paint: Paint): string {
  return paint(service, `${service}${afterwards ? ' (asynchronous)' : ''}`)
}

interface TracePart {
  readonly head: SpanNode
  /** Whether nobody waits for it: another service does it when it comes to it. */
  readonly afterwards: boolean
}

/** A span with what its own service does under it, and the same of each other service that takes over. */
function partsOf(root: SpanNode): readonly TracePart[] {
  const others = flatten(root).flatMap((node) => node.children.filter(({ service }) => service !== node.service))
  return [{ head: root, afterwards: false }, ...others.map((head) => ({ head, afterwards: true }))]
}

interface Branch {
  readonly first: string
  readonly rest: string
}

function draw(node: SpanNode, { first, rest }: Branch, drawing: Drawing): readonly string[] {
  const name = fitted(`${first}${node.failed ? '✗ ' : ''}${node.name}`, NAME_COLUMNS)
  const bar = drawing.paint(node.service, barOf(node, drawing))
  const line = `${name}  ${bar}${text(node.durationMs).padStart(10)}`
  const own = node.children.filter(({ service }) => service === node.service)
  const below = own.flatMap((child, index) => {
    const isLast = index === own.length - 1
    const branch = { first: `${rest}${isLast ? '└ ' : '├ '}`, rest: `${rest}${isLast ? '  ' : '│ '}` }
    return draw(child, branch, drawing)
  })
  return [line, ...below]
}

function barOf({ startMs, durationMs }: SpanNode, { totalMs, barColumns }: Drawing): string {
  const cells = (ms: number) => (ms / totalMs) * barColumns
  const from = Math.min(Math.floor(cells(startMs)), barColumns - 1)
  const eighths = Math.max(1, Math.min(Math.round(cells(durationMs) * 8), (barColumns - from) * 8))
  return `${' '.repeat(from)}${'█'.repeat(Math.floor(eighths / 8))}${EIGHTHS[eighths % 8]}`.padEnd(barColumns)
}

/**
 * The event's way in one line, its stages adding up: until the commit, in the
 * outbox, to Kafka, on Kafka, and to the effect. `null` where a stage is missing.
 * Without `eventId` the way is that of the first event that had its effect.
 */
export function describeWay(roots: readonly SpanNode[], eventId: string | null): string | null {
  const spans = roots.flatMap((root) => flatten(root))
  const inTime = spans.toSorted((a, b) => a.startMs - b.startMs)
  const id = eventId ?? inTime.find(({ name }) => name.startsWith('process '))?.eventId ?? null
  const about = (verb: string) => spans.find((span) => span.name.startsWith(`${verb} `) && span.eventId === id)
  const [root] = roots
  const send = about('send')
  const process = about('process')
  if (!root || !send || !process) return null
  const commit = spans.find(({ name, service }) => service === root.service && name.includes('COMMIT'))

  // A stage ends at the latest where the next begins: the relay may be faster than the answer to the client.
  const sendMs = send.startMs
  const committedMs = Math.min(endOf(commit ?? root), sendMs)
  const effectMs = Math.max(process.startMs, sendMs)
  const sentMs = Math.min(endOf(send), effectMs)
  // Events of one batch share its statements, and what they took is in the batch's own trace.
  const isInBatch = !flatten(process).some(({ name }) => name.startsWith('pg'))
  const stages = [
    ['mutation', committedMs],
    ['waited', sendMs - committedMs],
    ['send', sentMs - sendMs],
    ...(isInBatch
      ? [['effect in a batch after', effectMs - sentMs] as const]
      : [['waited', effectMs - sentMs] as const, ['effect', endOf(process) - effectMs] as const]),
  ] as const
  return `${stages.map(([name, ms]) => `${name} ${text(ms)}`).join(' → ')}: ${text(endOf(process))} in all`
}

/** A span and all below it. */
function flatten(node: SpanNode): readonly SpanNode[] {
  return [node, ...node.children.flatMap(flatten)]
}

function endOf({ startMs, durationMs }: SpanNode): number {
  return startMs + durationMs
}

/** Tenths only where they are a part that counts. */
function text(ms: number): string {
  if (ms < LEAST_MS && ms > 0) return '<0.1 ms'
  return `${ms.toFixed(ms < 9.95 ? 1 : 0)} ms`
}

function fitted(name: string, columns: number): string {
  return name.length > columns ? `${name.slice(0, columns - 1)}…` : name.padEnd(columns)
}
