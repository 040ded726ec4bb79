/** The outbox table as the relay's source: polled, and marked when published. */
import type { Knex } from 'knex'
import { answeringTopicRule, type TopicRule } from '../outbox/topic-rule.ts'
import type { KeyRef, LaneDirectory, Ownership, RelaySource, Settlement, TopicRegistry } from '../source.ts'
import { cleanTransaction } from '../transaction/clean-transaction.ts'
import {
  deleteIfEmpty,
  lockHeldKey,
  resumeKey,
  returnToPending,
  selectHeldKeys,
  skipFirst,
  upsertHeldKey,
} from './held-queries.ts'
import {
  boundLocks,
  claimLanes,
  deleteWorker,
  lockLease,
  releaseLanes,
  renewWorkers,
  resetCrashes,
} from './lease-queries.ts'
import {
  countAttempt,
  markPublished,
  moveToHeld,
  resetAttempts,
  selectHeld,
  selectPending,
  selectPendingLanes,
} from './outbox-queries.ts'
import { recordTopic, selectTopic } from './topic-queries.ts'

/** Events for one relay worker, from `db`'s outbox. */
export function createPostgresSource({ db, topicFor }: { db: Knex; topicFor: TopicRule }): RelaySource {
  /**
   * Runs `work` under the key's lane lease, or not at all when it is lost. Each
   * statement sees what the one before it has waited for, whatever isolation
   * the database has as its default.
   */
  async function fenced(ownership: Ownership, work: (trx: Knex.Transaction) => Promise<number>): Promise<Settlement> {
    return await cleanTransaction(
      db,
      async (trx) => {
        await boundLocks(trx)
        if (!(await lockLease(trx, ownership))) {
          return { changed: 0, fencedLanes: ownership.leases.map(({ lane }) => lane) }
        }
        return { changed: await work(trx), fencedLanes: [] }
      },
      { isolationLevel: 'read committed' },
    )
  }
  const rule = answeringTopicRule(topicFor)
  const ruleTopic = (key: KeyRef) => rule(key.aggregateType)

  return {
    read: async (ownership, request) => await selectPending(db, ownership, request),
    settle: async (ownership, events) => await markPublished(db, ownership, events),
    hold: async (ownership, key, request) =>
      await fenced(ownership, async (trx) => {
        await upsertHeldKey(trx, key, request)
        return await moveToHeld(trx, key, ruleTopic(key))
      }),
    holdFollowers: async (ownership, key) =>
      await fenced(ownership, async (trx) =>
        (await lockHeldKey(trx, key)) ? await moveToHeld(trx, key, ruleTopic(key)) : 0,
      ),
    heldKeys: async (lanes) => await selectHeldKeys(db, lanes),
    readHeld: async (key, limit) => await selectHeld(db, key, ruleTopic(key), limit),
    skip: async (ownership, key, request) =>
      await fenced(ownership, async (trx) => await skipFirst(trx, key, { ...request, ruleTopic: ruleTopic(key) })),
    goOn: async (ownership, key, asked) => await fenced(ownership, async (trx) => await resumeKey(trx, key, asked)),
    releaseKey: async (ownership, key) => {
      const { changed } = await fenced(ownership, async (trx) => {
        await lockHeldKey(trx, key)
        const isReleased = await deleteIfEmpty(trx, key, ruleTopic(key))
        if (isReleased && ruleTopic(key) !== key.topic) await returnToPending(trx, key, ruleTopic(key))
        return Number(isReleased)
      })
      return changed === 1
    },
    recordAttempt: async (ownership, event) => await countAttempt(db, ownership, event),
    clearAttempts: async (ownership, event) => await fenced(ownership, async (trx) => await resetAttempts(trx, event)),
    clearCrashes: async (ownership) => await resetCrashes(db, ownership),
    release: async (owner, lanes) => await releaseLanes(db, owner, lanes),
  }
}

/** Who owns which lane, in `db`. */
export function createPostgresDirectory(db: Knex): LaneDirectory {
  return {
    renew: async (owners, leaseMs, rests = []) => await renewWorkers(db, owners, { leaseMs, rests }),
    pendingLanes: async (lanes) => await selectPendingLanes(db, lanes),
    claim: async (owner, lanes) => await claimLanes(db, owner, lanes),
    retire: async (owner) => {
      await deleteWorker(db, owner)
    },
  }
}

/** The partition counts recorded in `db`. */
export function createPostgresTopicRegistry(db: Knex): TopicRegistry {
  return {
    recorded: async (topic) => await selectTopic(db, topic),
    record: async (topic, partitionCount) => await recordTopic(db, topic, partitionCount),
  }
}
