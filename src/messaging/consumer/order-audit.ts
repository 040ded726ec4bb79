/**
 * Looks whether each aggregate's versions come one after the other, counts
 * where they do not, and warns. Nothing waits for a gap: the audit tells of a
 * producer that breaks the order, or of a topic that has lost records.
 *
 * It knows what this member has seen since it got the partition. A key that was
 * parked, or a partition that is assigned anew, begins afresh.
 */
import type { Logger } from '../lifecycle/logger.ts'
import { ATTR_DESTINATION, ATTR_GROUP, ATTR_KIND } from '../telemetry/attributes.ts'
import { eventFields, inTraceOf } from '../telemetry/event-log.ts'
import { getInstruments } from '../telemetry/metrics.ts'
import type { TopicPartition } from '../transport.ts'
import { placeOf } from './board.ts'
import type { EventDelivery } from './decode.ts'

/** Keys remembered per partition; the ones longest unseen go first. About a megabyte. */
const KEYS_PER_PARTITION = 10_000

export class OrderAudit {
  readonly #group: string
  readonly #logger: Logger
  readonly #partitions = new Map<string, Map<string, number>>()

  constructor(group: string, logger: Logger) {
    this.#group = group
    this.#logger = logger
  }

  /**
   * Takes note of an event that came for the first time, in the partition's
   * order. One without version is not audited. `remembered` is false for types
   * without handler: the inbox does not tell their copies from the first.
   */
  see({ envelope, where, record }: EventDelivery, { remembered }: { readonly remembered: boolean }): void {
    const { aggregate, version } = envelope
    if (version === null) return
    const versions = this.#versionsOf(where)
    const key = JSON.stringify([aggregate.type, aggregate.id])
    const last = versions.get(key)
    if (last !== undefined && version <= last && !remembered) return
    if (last !== undefined && version !== last + 1) {
      const kind = version > last ? 'gap' : 'reversal'
      getInstruments().orderViolations.add(1, {
        [ATTR_GROUP]: this.#group,
        [ATTR_DESTINATION]: where.topic,
        [ATTR_KIND]: kind,
      })
      const fields = {
        consumer: this.#group,
        ...eventFields(envelope, where),
        offset: String(record.offset),
        version,
        last_version: last,
        kind,
      }
      inTraceOf(envelope.trace, () => this.#logger.warn(fields, "An aggregate's versions do not follow each other"))
    }
    // Set anew, so that the map's order is that of use.
    versions.delete(key)
    versions.set(key, version)
    if (versions.size > KEYS_PER_PARTITION) {
      const [oldest] = versions.keys()
      if (oldest !== undefined) versions.delete(oldest)
    }
  }

  /** Forgets a key whose events go another way for a while. */
  forget({ envelope: { aggregate }, where }: EventDelivery): void {
    this.#partitions.get(placeOf(where))?.delete(JSON.stringify([aggregate.type, aggregate.id]))
  }

  /** Forgets a partition that is assigned anew: another member may have had it. */
  restart(where: TopicPartition): void {
    this.#partitions.delete(placeOf(where))
  }

  #versionsOf(where: TopicPartition): Map<string, number> {
    const place = placeOf(where)
    const known = this.#partitions.get(place) ?? new Map<string, number>()
    this.#partitions.set(place, known)
    return known
  }
}
