/** The rules of the consumer. */
import type { Mutation } from './mutation.ts'

const INBOX = 'src/messaging/inbox/queries.ts'
const TOGETHER = 'src/messaging/consumer/apply-together.ts'
const ONE = 'src/messaging/consumer/apply-one.ts'
const APART = 'src/messaging/consumer/apply-apart.ts'
const HELD = 'src/messaging/dead-letters/held-keys.ts'
const REDRIVE = 'src/messaging/consumer/redrive.ts'
const ATTEMPT = 'src/messaging/consumer/transaction.ts'

const DELIVER = 'test/messaging/consumer/deliver.test.ts'
const REQUESTS = 'test/messaging/dead-letters/requests.test.ts'
const CRASHES = 'test/messaging/consumer/crash-points.test.ts'
const BATCH = 'a batch whose consumer ends at any statement has each effect once and loses none'

export const CONSUMER: readonly Mutation[] = [
  {
    name: 'inbox: duplicate handled',
    edits: [
      { file: 'src/messaging/inbox/process-once.ts', find: "if (fresh.size === 0) return 'duplicate'", replace: '' },
    ],
    test: 'test/messaging/inbox/process-once.test.ts',
    title: 'runs the handler the first time, and never again for the same consumer',
  },
  {
    name: 'consumer: dedupe insert removed',
    edits: [
      {
        file: INBOX,
        find: 'returning event_id`,\n    { consumer, eventIds },\n  )\n  return new Set(rows.map((row) => row.event_id))',
        replace:
          'returning event_id`,\n    { consumer, eventIds },\n  )\n  return new Set(rows.length < 0 ? [] : eventIds)',
      },
    ],
    test: DELIVER,
    title: 'applies an event once, however often it is delivered',
  },
  {
    name: 'consumer: effects of a batch outside the transaction',
    edits: [
      {
        file: TOGETHER,
        find: 'applyEvents(handlers, trx, [receive(delivery)])',
        replace: 'applyEvents(handlers, context.db as typeof trx, [receive(delivery)])',
      },
    ],
    test: CRASHES,
    title: BATCH,
  },
  {
    name: 'consumer: effect of one event outside the transaction',
    edits: [
      {
        file: ONE,
        find: 'applyEvents(handlers, trx, [receive(delivery)])',
        replace: 'applyEvents(handlers, db as typeof trx, [receive(delivery)])',
      },
    ],
    test: 'test/crash-points/crash-points.test.ts',
    title: 'F25 a process that dies at any point of its consumer',
  },
  {
    name: 'consumer: a database that went back not noticed',
    edits: [
      {
        file: 'src/messaging/consumer/stored-offsets.ts',
        find: 'const known = this.#known.get(placeOf(where)) ?? null',
        replace: 'const known = null',
      },
    ],
    test: 'test/messaging/consumer/went-back.test.ts',
    title: 'the same holds where an event without a handler comes next',
  },
  {
    name: "consumer: another member's offset lowered",
    edits: [
      {
        file: 'src/messaging/inbox/queries.ts',
        find: 'when :isAnew and consumer_offsets.next_offset <= coalesce(:known::bigint, -1)',
        replace: 'when :isAnew',
      },
    ],
    test: 'test/messaging/inbox/process-once.test.ts',
    title: 'an offset that another member has stored meanwhile is not lowered by who knew a lower one',
  },
  {
    name: 'consumer: a redelivery lowers the stored offset',
    edits: [
      {
        file: 'src/messaging/inbox/queries.ts',
        find: 'when :isAnew and consumer_offsets',
        replace: 'when consumer_offsets',
      },
    ],
    test: 'test/messaging/inbox/process-once.test.ts',
    title: 'a redelivery lowers no stored offset',
  },
  {
    name: 'consumer: a stop waits for what another member holds',
    edits: [
      {
        file: ATTEMPT,
        find: "cancelled.addEventListener('abort', stop, { once: true })",
        replace: '',
      },
    ],
    test: 'test/messaging/consumer/failures.test.ts',
    title: 'a stop cuts an event that waits for what another member has in hand',
  },
  {
    name: 'consumer: a stop waits for a database that does not answer',
    edits: [
      {
        file: 'src/messaging/consumer/consumer.ts',
        find: 'await Promise.race([all, afterCancelled(context, over.signal)])',
        replace: 'await all',
      },
    ],
    test: 'test/messaging/consumer/failures.test.ts',
    title: 'a stop ends within its grace though the database does not answer',
  },
  {
    name: 'consumer: a topic made anew not noticed',
    edits: [
      {
        file: 'src/messaging/consumer/stored-offsets.ts',
        find: 'if (stored !== null && endOffset < stored) this.#anew.add(place)',
        replace: 'if (stored === null) this.#anew.add(place)',
      },
    ],
    test: 'test/messaging/consumer/stored-offset.test.ts',
    title: 'a topic that was made anew counts from its start again',
  },
  {
    name: 'consumer: offset not stored with the effects',
    edits: [{ file: TOGETHER, find: 'await current.store(where, nextOffset)', replace: '' }],
    test: DELIVER,
    title: 'applies the events of a batch in order, and remembers the offset with them',
  },
  {
    name: 'consumer: offset stored before the effects',
    edits: [
      {
        file: TOGETHER,
        find: 'const sorted = await sortOut(context, where, deliveries, current)',
        replace:
          'await bounds.offsets.store(db, where, nextOffset)\n    const sorted = await sortOut(context, where, deliveries, current)',
      },
    ],
    test: 'test/messaging/consumer/stored-offset.test.ts',
    title: 'an offset is stored with the effects below it, or not at all',
  },
  {
    name: 'consumer: offset goes past what is unfinished',
    edits: [
      {
        file: APART,
        find: 'if (state.contiguous) state.finished = nextOffset',
        replace: 'state.finished = nextOffset',
      },
      {
        file: APART,
        find: 'const nextOffset = state.contiguous ? record.offset + 1n : state.finished',
        replace: 'const nextOffset = record.offset + 1n',
      },
    ],
    test: DELIVER,
    title: 'commits only the finished prefix when one of ten keys fails',
  },
  {
    name: 'consumer: later events of a failing key do not wait',
    edits: [
      {
        file: APART,
        find: 'state.resting.set(key, outcome.restMs)',
        replace: "state.resting.set(key.concat(' '), outcome.restMs)",
      },
    ],
    test: DELIVER,
    title: 'later events of a failing key wait for it, also within one batch',
  },
  {
    name: 'consumer: a skip leaves out whatever comes next',
    edits: [
      { file: REDRIVE, find: '(eventId === null || eventId === letter.eventId)', replace: "letter.eventId !== ''" },
    ],
    test: REQUESTS,
    title: 'F34 a skip asked again while what waits behind is redriven leaves out nothing more',
  },
  {
    name: 'consumer: a resume passes an event without a handler',
    edits: [
      {
        file: REDRIVE,
        find: 'if (!handlers.types.has(letter.eventType)) {',
        replace: "if (letter.eventType === '') {",
      },
    ],
    test: REQUESTS,
    title: 'a resume waits for an instance that has a handler for the event, and says so',
  },
  {
    name: 'consumer: a request that came during a failing attempt is dropped',
    edits: [
      {
        file: HELD,
        find: 'when held_keys.xmin::text = :rowVersion then null',
        replace: 'when held_keys.request is not null then null',
      },
    ],
    test: REQUESTS,
    title: 'a skip asked while the redrive of the same event fails is carried out',
  },
  {
    name: 'consumer: each look for requests begins at the start',
    edits: [
      {
        file: REDRIVE,
        find: 'after: requested.length < KEYS_PER_LOOK ? null : (requested.at(-1) ?? null)',
        replace: 'after: null',
      },
    ],
    test: REQUESTS,
    title: 'requests that are stuck keep none behind them from being carried out, and are told of all together',
  },
  {
    name: 'consumer: a handler may leave a savepoint open',
    edits: [{ file: ATTEMPT, find: '      requireIntact(trx, state, bounds)\n', replace: '' }],
    test: 'test/messaging/consumer/handler-transactions.test.ts',
    title: 'a handler that leaves a savepoint open behind it parks its key',
  },
  {
    name: 'consumer: a handler may commit',
    edits: [{ file: ATTEMPT, find: 'guard.hold()', replace: '' }],
    test: 'test/messaging/consumer/handler-transactions.test.ts',
    title: 'a handler that commits by hand parks its key',
  },
  {
    name: 'inbox: marked beside an open savepoint',
    edits: [
      {
        file: 'src/messaging/inbox/process-once.ts',
        find: 'guard.inTurn(call, () => markProcessed(trx, consumer, [event.id]))',
        replace: 'markProcessed(trx, consumer, [event.id])',
      },
    ],
    test: 'test/messaging/inbox/process-once.test.ts',
    title: 'an event is not marked beside an open savepoint, with which the mark could be undone and the effect stand',
  },
  {
    name: 'consumer: ROLLBACK in answer to COMMIT ignored',
    edits: [{ file: ATTEMPT, find: "=== 'ROLLBACK'", replace: "=== 'never'" }],
    test: 'test/messaging/consumer/handler-transactions.test.ts',
    title: 'an event whose COMMIT was answered by ROLLBACK, as what its handler left running had failed',
  },
  {
    name: 'consumer: a connection whose transaction has not ended lent again',
    edits: [
      {
        file: 'src/messaging/transaction/clean-transaction.ts',
        find: 'if (!watch.isIdle) watch.cut(UNCLEAN)',
        replace: 'void UNCLEAN',
      },
    ],
    test: 'test/messaging/consumer/handler-transactions.test.ts',
    title: 'an attempt whose ROLLBACK waits too long leaves its connection to nobody',
  },
  {
    name: 'consumer: a handler that idles is taken for an outage',
    edits: [{ file: 'src/messaging/consumer/failure.ts', find: 'isSevered && !idled', replace: 'isSevered' }],
    test: 'test/messaging/consumer/given-up.test.ts',
    title: 'a handler that idles longer than the server allows parks its key',
  },
  {
    name: 'consumer: a statement that is too slow is taken for an outage',
    edits: [{ file: ATTEMPT, find: "&& phase === 'handle' && hasAnswered", replace: '&& !phase && hasAnswered' }],
    test: 'test/messaging/consumer/given-up.test.ts',
    title:
      'a handler whose statement takes longer than its client waits, on a database that answers, parks its key: one that runs on for long',
  },
  {
    name: 'consumer: a silent database costs attempts',
    edits: [{ file: ATTEMPT, find: "&& phase === 'handle' && hasAnswered", replace: '' }],
    test: 'test/messaging/consumer/given-up.test.ts',
    title: 'a database that is silent costs no attempt: in',
  },
]
