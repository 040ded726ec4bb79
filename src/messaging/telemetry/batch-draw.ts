/** Which batches are recorded in a trace of their own, and to what of their events those lead. */
import { type Link, TraceFlags } from '@opentelemetry/api'
import type { TraceContext } from '../envelope.ts'
import { InvalidOptionError } from '../errors.ts'
import { ATTR_MESSAGE_ID } from './attributes.ts'
import { isUnsampled, toSpanContext } from './trace-context.ts'

/** The SDK's own limit. */
const MAX_LINKS = 128

let ratio = 0.001

/**
 * Sets which share of batches this thread records, 0 to 1. Decided at the
 * start: what then fails is recorded when it is repeated.
 * @defaultValue 0.001
 * @throws InvalidOptionError for any other share
 */
export function setBatchTraceRatio(share: number): void {
  if (!(typeof share === 'number' && share >= 0 && share <= 1)) {
    throw new InvalidOptionError('share', share, 'a number from 0 to 1')
  }
  ratio = share
}

/** Whether the batch that begins now is one of them. */
export function isDrawn(): boolean {
  return ratio > 0 && Math.random() < ratio
}

/** Only to what was recorded: a link that leads nowhere helps nobody. */
export function linksTo(
  messages: readonly { readonly id: string | null; readonly trace: TraceContext | null }[],
): Link[] {
  const links: Link[] = []
  for (const { id, trace: stored } of messages) {
    if (links.length === MAX_LINKS) break
    if (stored === null || isUnsampled(stored.traceparent)) continue
    const context = toSpanContext(stored)
    if (context === null || (context.traceFlags & TraceFlags.SAMPLED) === 0) continue
    links.push({ context, ...(id === null ? {} : { attributes: { [ATTR_MESSAGE_ID]: id } }) })
  }
  return links
}
