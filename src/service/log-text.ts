/**
 * The log's lines for people, where `npm start` shows them in a terminal. For
 * machines, which is the default, they stay JSON.
 */
import { styleText } from 'node:util'
import pino from 'pino'
import type { LogFormat } from './config.ts'

/** Where lines go: standard output, at once, in `format`. */
export function logDestination(format: LogFormat): pino.DestinationStream {
  const out = pino.destination({ fd: 1, sync: true })
  if (format === 'json') return out
  return { write: (line) => void out.write(logText(line, { color: format === 'color' })) }
}

/** What every line has in its own place, and what only machines need. */
const SHOWN = new Set(['level', 'time', 'service', 'thread', 'msg', 'span_id', 'trace_flags'])
const COLORS = { trace: 'gray', debug: 'gray', info: 'green', warn: 'yellow', error: 'red', fatal: 'red' } as const

/** One line of JSON as text: time, level, thread, message and fields in a line; errors and lists below it. */
export function logText(json: string, { color }: { color: boolean }): string {
  const line = JSON.parse(json) as Record<string, unknown>
  const paint = (style: Parameters<typeof styleText>[0], text: string) =>
    color ? styleText(style, text, { validateStream: false }) : text
  const level = String(line.level) as keyof typeof COLORS
  const fields: string[] = []
  const below: string[] = []
  for (const [name, value] of Object.entries(line)) {
    if (SHOWN.has(name) || value === null || value === undefined) continue
    if (isError(value)) below.push(...errorLines(value))
    else if (Array.isArray(value) && name === 'problems') below.push(...value.map(String))
    else fields.push(`${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
  }
  const head = [
    paint('gray', clock(line.time)),
    paint(COLORS[level] ?? 'gray', level.padEnd(5)),
    paint('cyan', String(line.thread).padEnd(8)),
    String(line.msg),
    paint('gray', fields.join(' ')),
  ]
  return `${[head.join(' ').trimEnd(), ...below.map((text) => `${' '.repeat(28)}${text}`)].join('\n')}\n`
}

/** The time of day in this machine's zone, with milliseconds. */
function clock(time: unknown): string {
  const at = new Date(String(time))
  return `${at.toLocaleTimeString('en-GB')}.${String(at.getMilliseconds()).padStart(3, '0')}`
}

interface DescribedError {
  readonly type?: string
  readonly message: string
  readonly code?: unknown
  readonly stack?: string
  readonly cause?: unknown
}

/** An error as the logger describes it. */
function isError(value: unknown): value is DescribedError {
  return typeof value === 'object' && value !== null && 'message' in value
}

function errorLines({ type = 'Error', message, code, stack = '', cause }: DescribedError): readonly string[] {
  const said = code === undefined || message.includes(String(code)) ? message : `${message} (${code})`
  return [
    `${type}: ${said}`,
    ...stack
      .split('\n')
      .filter(Boolean)
      .map((frame) => `  ${frame}`),
    ...(isError(cause) ? errorLines(cause).map((text, at) => (at === 0 ? `because of ${text}` : text)) : []),
  ]
}
