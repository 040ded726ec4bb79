/** Rules of the append and of the transaction helper. */
import type { Mutation } from './mutation.ts'

const APPEND = 'src/messaging/outbox/append.ts'
const QUERIES = 'src/messaging/outbox/queries.ts'
const TRANSACTION = 'src/messaging/outbox/transaction.ts'
const GUARD = 'src/messaging/transaction/guard.ts'
const CONNECTION = 'src/messaging/transaction/connection.ts'
const TESTS = 'test/messaging/outbox/transaction.test.ts'

export const WRITE_SIDE: readonly Mutation[] = [
  {
    name: 'command: state written outside the transaction',
    edits: [
      {
        file: 'src/orders/commands.ts',
        find: 'await insertOrder(trx, decision.order)',
        replace: 'await insertOrder(db as typeof trx, decision.order)',
      },
    ],
    test: 'test/crash-points/crash-points.test.ts',
    title: 'F1 a process that dies at any point of its write',
  },
  {
    name: 'append: key lock removed',
    edits: [
      { file: APPEND, find: 'if (!locked) await lock(trx, sealed, enlistment)', replace: 'void lock; void enlistment' },
    ],
    test: 'test/messaging/outbox/append-order.test.ts',
    title: 'two transactions on one aggregate commit in the order in which they appended',
  },
  {
    name: 'append: beside an open savepoint',
    edits: [
      {
        file: GUARD,
        find: 'return this.#savepoints.length > 0',
        replace: 'return false',
      },
    ],
    test: 'test/messaging/outbox/savepoints.test.ts',
    title: 'opened beside it',
  },
  {
    name: 'append: a savepoint does not wait for appends',
    edits: [
      {
        file: GUARD,
        find: 'return this.#calls.size === 0 ? open() : this.#running.then(open)',
        replace: 'return open()',
      },
    ],
    test: 'test/messaging/outbox/savepoints.test.ts',
    title: 'opens a savepoint after the appends that were called before it, and undoes none of them',
  },
  {
    name: 'append: keys locked in any order',
    edits: [
      {
        file: QUERIES,
        find: 'from (select distinct hashtextextended(aggregate.id, hashtextextended(aggregate.type, 0)) as key',
        replace: 'from (select hashtextextended(aggregate.id, hashtextextended(aggregate.type, 0)) as key',
      },
      { file: QUERIES, find: 'order by key) as sorted', replace: 'order by random()) as sorted' },
    ],
    test: TESTS,
    title: 'never deadlocks appends that name the same aggregates in different order',
  },
  {
    name: 'append: order of the events not kept',
    edits: [
      {
        file: QUERIES,
        find: 'where (select max(bytes) from given) <= :maxBytes\n        order by position)',
        replace: 'where (select max(bytes) from given) <= :maxBytes\n        order by random())',
      },
    ],
    test: 'test/messaging/outbox/append.test.ts',
    title: 'stores 10,000 events of one mutation in one statement and in their order',
  },
  {
    name: 'transaction: ROLLBACK in answer to COMMIT ignored',
    edits: [
      {
        file: TRANSACTION,
        find: 'const command = commandOf(await progress.guard.answer)',
        replace: "const command: string = (await progress.guard.answer, commandOf, 'COMMIT')",
      },
    ],
    test: TESTS,
    title: 'reports a rollback when a failed statement was swallowed, where Knex would not: after an append',
  },
  {
    name: 'transaction: aborted transaction not seen before COMMIT',
    edits: [
      { file: TRANSACTION, find: 'known ?? (await selectTransactionId(trx))', replace: 'known' },
      {
        file: TRANSACTION,
        find: 'const command = commandOf(await progress.guard.answer)',
        replace: "const command: string = (await progress.guard.answer, commandOf, 'COMMIT')",
      },
    ],
    test: TESTS,
    title: 'reports a rollback when a failed statement was swallowed, where Knex would not: before it has written',
  },
  {
    name: 'transaction: unknown commit reported as done',
    edits: [
      { file: TRANSACTION, find: 'throw new CommitUnknownError({ cause })', replace: 'return announced(progress)' },
    ],
    test: TESTS,
    title: 'says that the commit is unknown when nobody can be asked',
  },
  {
    name: "transaction: a commit that is under way taken for another's",
    edits: [
      {
        file: 'src/messaging/outbox/commit-outcome.ts',
        find: "if (status === 'in progress') return status",
        replace: "if (status === 'in progress') return 'rolled back'",
      },
    ],
    test: 'test/messaging/outbox/crash-outcome.test.ts',
    title: 'a commit that goes on after its answer was lost is waited for',
  },
  {
    name: 'transaction: a crash before the answer not noticed',
    edits: [
      {
        file: 'src/messaging/outbox/commit-outcome.ts',
        find: 'if (here.crash !== history.crash) return',
        replace: "if (here.crash === 'never') return",
      },
    ],
    test: 'test/messaging/outbox/crash-outcome.test.ts',
    title: 'is not taken for the one that has its number now',
  },
  {
    name: 'transaction: lost answer reported as failed',
    edits: [
      {
        file: TRANSACTION,
        find: "if (progress.phase !== 'committing' || isDefiniteRollback(error)) throw error\n  return await settle(db, progress, error)",
        replace: 'throw error',
      },
    ],
    test: TESTS,
    title: 'finds out that it committed when the answer to COMMIT is lost, and announces it',
  },
  {
    name: 'transaction: commit by hand allowed',
    edits: [
      {
        file: GUARD,
        find: 'trx.commit = (value) => {\n      if (this.#isHeld) return this.#refuseByHand()',
        replace: 'trx.commit = (value) => {',
      },
    ],
    test: TESTS,
    title: 'refuses a commit by hand, after which nobody could tell the outcome',
  },
  {
    name: 'transaction: ended by a statement of its callback',
    edits: [{ file: TRANSACTION, find: 'if (watch.isIdle)', replace: 'if (watch.isIdle && false)' }],
    test: TESTS,
    title: 'a transaction that one of its statements has ended is not reported as committed',
  },
  {
    name: 'transaction: goes on beside a statement that was given up',
    edits: [{ file: CONNECTION, find: 'onGivenUp(connection, () => watch.cut(GIVEN_UP))', replace: 'void onGivenUp' }],
    test: 'test/messaging/outbox/given-up.test.ts',
    title: 'a savepoint whose RELEASE was given up is not committed beside what is done in its place',
  },
  {
    name: 'transaction: what is left running in its savepoints is not silenced',
    edits: [{ file: GUARD, find: 'if (guard) guard.#silence()', replace: '' }],
    test: 'test/messaging/outbox/left-running.test.ts',
    title: 'an append in a savepoint that is not awaited ends no process',
  },
  {
    name: 'relay: a connection whose statement was given up lent again',
    edits: [{ file: CONNECTION, find: '(_id, connection) => watchConnection(connection)', replace: '() => {}' }],
    test: 'test/messaging/relay/stuck-database.test.ts',
    title: 'goes on when the connections that its pool has fall silent, and new ones answer',
  },
  {
    name: 'transaction: one of Knex goes on beside a statement that was given up',
    edits: [
      {
        file: GUARD,
        find: 'connectionOf(trx).then(watchConnection, () => {})',
        replace: 'void connectionOf, watchConnection',
      },
    ],
    test: 'test/messaging/outbox/given-up.test.ts',
    title: 'a savepoint whose undoing was given up is not committed, in a transaction that Knex has begun',
  },
  {
    name: 'transaction: a BEGIN that was given up stays open',
    edits: [
      {
        file: 'src/messaging/transaction/clean-transaction.ts',
        find: 'watch.cut(UNCLEAN)\n    throw',
        replace: 'throw',
      },
    ],
    test: 'test/messaging/outbox/given-up.test.ts',
    title: 'a BEGIN that was given up leaves no transaction open on its connection: a new one',
  },
  {
    name: 'transaction: what it leaves running when it fails is not silenced',
    edits: [{ file: GUARD, find: 'this.#isHeld = false\n    this.#silence()', replace: 'this.#isHeld = false' }],
    test: 'test/messaging/outbox/left-running.test.ts',
    title: 'ends no process',
  },
  {
    name: 'savepoint: append that nobody awaits allowed',
    edits: [
      {
        file: TRANSACTION,
        find: 'const value = await work(savepoint)\n      guard.close()',
        replace: 'const value = await work(savepoint)\n      guard.letGo()',
      },
    ],
    test: 'test/messaging/outbox/savepoints.test.ts',
    title: 'a savepoint whose append nobody has awaited is undone and rejects, as a transaction is',
  },
  {
    name: 'append: a savepoint that was open before is not known',
    edits: [{ file: GUARD, find: 'parent?.noteSavepoint({ isOver: () => trx.isCompleted(), guard })', replace: '' }],
    test: 'test/messaging/outbox/savepoints.test.ts',
    title: 'refuses it where such a transaction appends first in the savepoint, and only then beside it',
  },
  {
    name: 'append: announced after a rollback without an error',
    edits: [
      {
        file: 'src/messaging/outbox/enlistment.ts',
        find: 'if (!guard.isRolledBack) parent?.merge(enlistment)',
        replace: 'parent?.merge(enlistment)',
      },
    ],
    test: 'test/messaging/outbox/savepoints.test.ts',
    title: 'tells no relay of events that were rolled back without an error: a savepoint',
  },
  {
    name: 'transaction: append that nobody awaits allowed',
    edits: [{ file: GUARD, find: 'if (running) throw', replace: 'if (running && false) throw' }],
    test: 'test/messaging/outbox/refusals.test.ts',
    title: 'rolls back when an append was not awaited',
  },
]
