/**
 * Where the span of a stored context belongs: in its trace, or at the root of a
 * new one with a link, when joining would stretch a trace over hours.
 */
import { type Attributes, type Context, type Link, ROOT_CONTEXT, trace } from '@opentelemetry/api'
import type { TraceContext } from '../envelope.ts'
import { ATTR_DETACHED, ATTR_DETACHED_REASON, ATTR_OUTBOX, ATTR_REASON, outboxName } from './attributes.ts'
import { getInstruments } from './metrics.ts'
import { toSpanContext } from './trace-context.ts'

/** Milliseconds after which an event's spans no longer join its trace. */
export const SAME_TRACE_MAX_AGE_MS = 3_600_000

/** What to start a span with. */
export interface Placement {
  /** The parent's context. */
  readonly context: Context
  readonly links: Link[]
  readonly attributes: Attributes
  /** Whether it joins the stored context's trace. */
  readonly joins: boolean
  /** Whether the stored context is unusable, and so must not travel on. */
  readonly malformed: boolean
}

const fresh: Placement = { context: ROOT_CONTEXT, links: [], attributes: {}, joins: false, malformed: false }

/**
 * Places a span by the context stored with its event. A detached root that has
 * a link is to be sampled as that link was: our sampler knows it by its
 * attributes. Without usable context it is sampled as any new trace.
 */
export function placeSpan(
  stored: TraceContext | null,
  { since, replay }: { since: Date | undefined; replay: boolean },
): Placement {
  if (stored === null) return fresh
  const remote = toSpanContext(stored)
  if (remote === null) return { ...detach('malformed', []), malformed: true }

  const links = [{ context: remote }]
  if (replay) return detach('replay', links)
  if (since && Date.now() - since.getTime() > SAME_TRACE_MAX_AGE_MS) return detach('old', links)
  return { context: trace.setSpanContext(ROOT_CONTEXT, remote), links, attributes: {}, joins: true, malformed: false }
}

function detach(reason: 'old' | 'replay' | 'malformed', links: Link[]): Placement {
  getInstruments().tracesDetached.add(1, { [ATTR_OUTBOX]: outboxName(), [ATTR_REASON]: reason })
  return {
    context: ROOT_CONTEXT,
    links,
    attributes: { [ATTR_DETACHED]: true, [ATTR_DETACHED_REASON]: reason },
    joins: false,
    malformed: false,
  }
}
