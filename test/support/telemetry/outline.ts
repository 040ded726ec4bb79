/** A trace as text: what is under what. */

/** What an outline needs to know of a span. */
export interface OutlinedSpan {
  readonly spanId: string
  /** Empty for a root. */
  readonly parentSpanId: string
  readonly name: string
  /** internal 1, server 2, client 3, producer 4, consumer 5. */
  readonly kind: number
  readonly service: string
  /** unset 0, ok 1, error 2. */
  readonly status: number
}

const KINDS = ['', 'internal', 'server', 'client', 'producer', 'consumer']

/** The tree as indented lines, siblings by name, and equal ones once: how many statements a commit takes is not the point. */
export function outline(spans: readonly OutlinedSpan[], parent = '', depth = 0): string {
  const children = spans
    // Knex asks a new connection for its version; whether one is opened just then is chance.
    .filter(({ parentSpanId, name }) => parentSpanId === parent && !name.startsWith('pg.query:SELECT'))
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map((span) => {
      const failed = span.status === 2 ? ' ERROR' : ''
      const line = `${'  '.repeat(depth)}${span.name} | ${KINDS[span.kind]} ${span.service}${failed}`
      return `${line}\n${outline(spans, span.spanId, depth + 1)}`
    })
  return [...new Set(children)].join('')
}
