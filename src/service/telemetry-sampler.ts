/**
 * Which spans are recorded.
 *
 * New traces by ratio, others as their parent; and the cases that a standard
 * sampler does not know: the second span of a statement, work that belongs to
 * nothing, a root that stands in for a child, and a batch's own trace.
 */
import { type Context, type Link, type SpanAttributes, type SpanKind, TraceFlags, trace } from '@opentelemetry/api'
import {
  ParentBasedSampler,
  type Sampler,
  SamplingDecision,
  type SamplingResult,
  TraceIdRatioBasedSampler,
} from '@opentelemetry/sdk-trace'
import { ATTR_DB_SYSTEM_NAME } from '@opentelemetry/semantic-conventions'
import type { SamplerConfig } from './telemetry-config.ts'

const KNEX_SCOPE = '@opentelemetry/instrumentation-knex'

/** Makes the sampler of `config`. */
export function createSampler({ parentBased, ratio }: SamplerConfig): Sampler {
  const byRatio = new TraceIdRatioBasedSampler(ratio)
  return new OutboxSampler(parentBased ? new ParentBasedSampler({ root: byRatio }) : byRatio, ratio > 0)
}

class OutboxSampler implements Sampler {
  readonly #delegate: Sampler
  readonly #recordsAny: boolean

  constructor(delegate: Sampler, recordsAny: boolean) {
    this.#delegate = delegate
    this.#recordsAny = recordsAny
  }

  shouldSample(
    context: Context,
    traceId: string,
    name: string,
    kind: SpanKind,
    attributes: SpanAttributes,
    links: Link[],
  ): SamplingResult {
    // knex and pg each make a span of a statement; knex's says more.
    if (name.startsWith('pg.query') && parentScope(context) === KNEX_SCOPE) {
      return { decision: SamplingDecision.NOT_RECORD }
    }
    // Housekeeping, migrations, GraphQL's work on its schema: they belong to no request and no event.
    const homeless = name.startsWith('graphql.') || attributes[ATTR_DB_SYSTEM_NAME] !== undefined
    if (homeless && !trace.getSpan(context)) return { decision: SamplingDecision.NOT_RECORD }
    // Drawn by the library: at the share of requests on top of that none would be left.
    if (attributes['outbox.batch'] === true) return { decision: decided(this.#recordsAny) }
    const [origin] = links
    if (attributes['outbox.trace.detached'] === true && origin) {
      return { decision: decided((origin.context.traceFlags & TraceFlags.SAMPLED) !== 0) }
    }
    return this.#delegate.shouldSample(context, traceId, name, kind, attributes, links)
  }

  toString(): string {
    return `OutboxSampler{${this.#delegate}}`
  }
}

function decided(sampled: boolean): SamplingDecision {
  return sampled ? SamplingDecision.RECORD_AND_SAMPLED : SamplingDecision.NOT_RECORD
}

/** The API's span does not show its scope; the SDK's has it. */
function parentScope(context: Context): string | undefined {
  const parent = trace.getSpan(context) as { instrumentationScope?: { name: string } } | undefined
  return parent?.instrumentationScope?.name
}
