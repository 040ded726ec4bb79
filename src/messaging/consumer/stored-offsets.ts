/**
 * The offsets that a consumer keeps in its database, and what this member knows
 * of them: they only grow, unless the database has gone back.
 *
 * A database that goes back under a running consumer, restored from a backup or
 * replaced by a standby that lagged behind, has lost effects of events that the
 * member is past. Nobody would deliver those again. So no offset is stored upon
 * one that is lower than it should be; the consumer asks the broker anew, from
 * where the database is.
 */
import type { Knex } from 'knex'
import { selectOffset, selectOffsets, storeOffset } from '../inbox/queries.ts'
import type { TopicPartition } from '../transport.ts'
import { placeOf } from './board.ts'

/** The database has less than it had: what was to be committed upon it is rolled back. */
export class DatabaseWentBackError extends Error {
  override readonly name = 'DatabaseWentBackError'
  readonly code = 'DATABASE_WENT_BACK'

  constructor({ topic, partition }: TopicPartition) {
    super(`The offset that was stored for ${topic}, partition ${partition} is gone: the database has gone back`)
  }
}

export class StoredOffsets {
  readonly #group: string
  readonly #onWentBack: () => void
  /** By place: what the database had at least; `null` where it had nothing. */
  readonly #known = new Map<string, bigint | null>()
  /** Places that ended before what was stored when they began, until something is stored upon that. */
  readonly #anew = new Set<string>()

  /** `onWentBack` is called at each discovery: everything is to begin anew. */
  constructor(group: string, onWentBack: () => void) {
    this.#group = group
    this.#onWentBack = onWentBack
  }

  /** Reads where the effects of a partition end, as it begins; `null` when nothing is stored. The partition itself ends at `endOffset`. */
  async begin(db: Knex, where: TopicPartition, endOffset: bigint): Promise<bigint | null> {
    const stored = await selectOffset(db, this.#group, where)
    const place = placeOf(where)
    this.#known.set(place, stored)
    if (stored !== null && endOffset < stored) this.#anew.add(place)
    else this.#anew.delete(place)
    return stored
  }

  /**
   * Stores that all effects below `nextOffset` are in the database, or in this
   * transaction; {@link committed} says when it holds. Rejects with
   * {@link DatabaseWentBackError} instead of passing over what is lost.
   */
  async store(db: Knex, where: TopicPartition, nextOffset: bigint): Promise<void> {
    const known = this.#known.get(placeOf(where)) ?? null
    const isAnew = this.#anew.has(placeOf(where))
    if (await storeOffset(db, this.#group, where, { known, nextOffset, isAnew })) return
    this.#onWentBack()
    throw new DatabaseWentBackError(where)
  }

  /** What {@link store} has stored is committed. */
  committed(where: TopicPartition, nextOffset: bigint): void {
    this.#known.set(placeOf(where), nextOffset)
    this.#anew.delete(placeOf(where))
  }

  /** Looks whether the database has gone back where nothing has been stored since, among the partitions that are `ours`. */
  async check(db: Knex, ours: readonly TopicPartition[]): Promise<void> {
    const places = new Set(ours.map(placeOf))
    // Before the read: what is committed meanwhile is not missed in an answer that is older.
    const before = [...this.#known].filter(([place]) => places.has(place))
    const stored = await selectOffsets(db, this.#group)
    const actual = new Map(stored.map(({ nextOffset, ...where }) => [placeOf(where), nextOffset]))
    const isBack = before.some(([place, known]) => known !== null && (actual.get(place) ?? -1n) < known)
    if (isBack) this.#onWentBack()
  }

  /** Forgets everything: each partition begins anew. */
  clear(): void {
    this.#known.clear()
    this.#anew.clear()
  }
}
