/**
 * Gives SQL written by hand the name that a builder's statement has: `insert
 * orders.outbox` and not `raw orders`, so that a trace can be read.
 */
import type { Context } from '@opentelemetry/api'
import type { ReadableSpan, SpanProcessor } from '@opentelemetry/sdk-trace'
import {
  ATTR_DB_COLLECTION_NAME,
  ATTR_DB_NAMESPACE,
  ATTR_DB_OPERATION_NAME,
  ATTR_DB_QUERY_TEXT,
} from '@opentelemetry/semantic-conventions'

/** What the processor gets: a span that can still be changed. */
type StartedSpan = Parameters<SpanProcessor['onStart']>[0]

/** Characters of a statement that a span keeps. */
const SHOWN_LENGTH = 500

/** Characters of a statement that are looked at: what it changes may come late in it. */
export const READ_LENGTH = 5_000

/** Renames knex's raw statements as they start, and shortens long ones. */
export const statementNames: SpanProcessor = {
  onStart(span: StartedSpan, _parent: Context): void {
    const { name, attributes } = span as unknown as ReadableSpan
    const text = attributes[ATTR_DB_QUERY_TEXT]
    if (typeof text !== 'string') return
    if (text.length > SHOWN_LENGTH) span.setAttribute(ATTR_DB_QUERY_TEXT, `${text.slice(0, SHOWN_LENGTH)}…`)
    if (!name.startsWith('raw')) return
    const { operation, table } = describeStatement(text)
    span.setAttribute(ATTR_DB_OPERATION_NAME, operation)
    if (table !== null) span.setAttribute(ATTR_DB_COLLECTION_NAME, table)
    const namespace = attributes[ATTR_DB_NAMESPACE]
    const target = [namespace, table].filter((part) => typeof part === 'string').join('.')
    span.updateName(target ? `${operation} ${target}` : operation)
  },
  onEnd: () => {},
  forceFlush: async () => {},
  shutdown: async () => {},
}

const INSERT = /\binsert into\s+"?([a-z_]\w*)/i
// `for update` and `do update` change nothing by that name.
const CHANGE = /(?:(?<!\b(?:for|do)\s+)\b(update)|\b(delete) from)\s+"?([a-z_]\w*)/i
const SOURCE = /\bfrom\s+"?([a-z_]\w*)"?(?![\w(])/i
const VERB = /^[\s(]*(?:--.*\s+)*([a-z]+)/i

/** What a statement does, and to which table as far as that is plain. A statement that reads and changes is the change. */
export function describeStatement(sql: string): { operation: string; table: string | null } {
  const [, inserted] = INSERT.exec(sql) ?? []
  if (inserted) return { operation: 'insert', table: inserted }
  const [, update, , changed] = CHANGE.exec(sql) ?? []
  if (changed) return { operation: update ? 'update' : 'delete', table: changed }
  const [, verb = 'statement'] = VERB.exec(sql.toLowerCase()) ?? []
  return { operation: verb === 'with' ? 'select' : verb, table: SOURCE.exec(sql)?.[1] ?? null }
}
