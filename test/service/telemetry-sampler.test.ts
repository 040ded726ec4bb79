import { expect, test } from '@jest/globals'
import { type Context, ROOT_CONTEXT, SpanKind, trace } from '@opentelemetry/api'
import { SamplingDecision } from '@opentelemetry/sdk-trace'
import { createSampler } from '../../src/service/telemetry-sampler.ts'

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c'
const context = (traceFlags: number) => ({ traceId: TRACE_ID, spanId: 'b7ad6b7169203331', traceFlags })
const under = (traceFlags: number, scope?: string): Context => {
  const span = trace.wrapSpanContext(context(traceFlags))
  return trace.setSpan(ROOT_CONTEXT, Object.assign(span, { instrumentationScope: { name: scope } }))
}

function decide(
  ratio: number,
  name: string,
  parent: Context,
  attributes = {},
  links: { context: ReturnType<typeof context> }[] = [],
) {
  const sampler = createSampler({ parentBased: true, ratio })
  return sampler.shouldSample(parent, TRACE_ID, name, SpanKind.CLIENT, attributes, links).decision
}

const sql = { 'db.system.name': 'postgresql' }
const detached = { 'outbox.trace.detached': true }

test.each([
  ['a new trace, by ratio', 1, 'POST', ROOT_CONTEXT, {}, [], true],
  ['a new trace, by ratio', 0, 'POST', ROOT_CONTEXT, {}, [], false],
  ['a child, as its parent', 0, 'insert orders', under(1), sql, [], true],
  ['a child, as its parent', 1, 'insert orders', under(0), sql, [], false],
  [
    "knex's statement once more by pg: never",
    1,
    'pg.query:INSERT orders',
    under(1, '@opentelemetry/instrumentation-knex'),
    sql,
    [],
    false,
  ],
  ["pg's statement alone", 1, 'pg.query:BEGIN orders', under(1, 'graphql'), sql, [], true],
  ['a statement of housekeeping: never', 1, 'select outbox', ROOT_CONTEXT, sql, [], false],
  ['work on the schema before any request: never', 1, 'graphql.parseSchema', ROOT_CONTEXT, {}, [], false],
  ['a root in place of a recorded child', 0, 'send', ROOT_CONTEXT, detached, [{ context: context(1) }], true],
  ['a root in place of a child that was not', 1, 'send', ROOT_CONTEXT, detached, [{ context: context(0) }], false],
  ['a batch that the library has drawn', 0.001, 'relay orders', ROOT_CONTEXT, { 'outbox.batch': true }, [], true],
  ['a batch, where nothing is recorded', 0, 'relay orders', ROOT_CONTEXT, { 'outbox.batch': true }, [], false],
  ['a root without usable context, by ratio', 1, 'send', ROOT_CONTEXT, detached, [], true],
] as const)('%s (ratio %d): %s', (_case, ratio, name, parent, attributes, links, recorded) => {
  const decision = decide(ratio, name, parent, attributes, [...links])

  expect(decision).toBe(recorded ? SamplingDecision.RECORD_AND_SAMPLED : SamplingDecision.NOT_RECORD)
})
