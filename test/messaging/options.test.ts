/** What is given is what is asked for: a misspelt option is named, a part that is something else is refused, and no secret is shown. */
import { expect, test } from '@jest/globals'
import knex, { type Knex } from 'knex'
import {
  adoptPartitions,
  appendToOutbox,
  assertSchema,
  defaultTopicFor,
  defineHandlers,
  defineSetHandler,
  dismissForeignRecord,
  inTransaction,
  listDeadLetters,
  listHeldKeys,
  messagingMigrations,
  migrate,
  migrateDown,
  processOnce,
  rawJson,
  readDeadLetter,
  requestResume,
  requestSkip,
  runRelayWorker,
  setBatchTraceRatio,
  setOutboxName,
  setWaitSpans,
  silentLogger,
  startConsumer,
  startOutboxGauges,
  startRelay,
  startWakeNotifier,
  workerLine,
} from '../../src/messaging/index.ts'
import { countLag, createKafkaPublisher, createKafkaSubscriber } from '../../src/messaging/kafka/index.ts'
import { requireKnown, withDefaults } from '../../src/messaging/options.ts'
import { InMemoryBroker } from '../../src/messaging/testing/index.ts'

/** Never connected: what is refused is refused before. */
const db = knex({ client: 'pg' })
const broker = new InMemoryBroker()
const publisher = broker.createPublisher()
const kafka = { brokers: ['127.0.0.1:1'], clientId: 'options' }
const misspelt: object = { pasword: 'hunter2' }
const threads = { entry: new URL(import.meta.url), count: 1 }
const line = { post: () => {}, listen: () => {}, close: () => {} }
const subscriber = broker.createSubscriber()
const consumer = {
  name: 'summary',
  topics: ['order.events'],
  db,
  subscriber,
  handlers: defineHandlers({ OrderPlaced: async () => {} }),
}

test.each<[string, () => unknown]>([
  ['startRelay', () => startRelay({ db, publisher, ...misspelt })],
  ['startRelay with threads', () => startRelay({ db, threads, ...misspelt })],
  ['runRelayWorker', () => runRelayWorker({ line, db, publisher, ...misspelt })],
  ['startConsumer', () => startConsumer({ ...consumer, ...misspelt })],
  ['createKafkaPublisher', () => createKafkaPublisher({ ...kafka, ...misspelt })],
  ['createKafkaSubscriber', () => createKafkaSubscriber({ ...kafka, ...misspelt })],
  ['countLag', () => countLag({ ...kafka, topic: 'order.events', groups: ['summary'], ...misspelt })],
  ['appendToOutbox', () => appendToOutbox(db as Knex.Transaction, [], misspelt)],
  ['inTransaction', () => inTransaction(db, async () => {}, misspelt)],
  ['startWakeNotifier', () => startWakeNotifier(db, misspelt)],
  ['adoptPartitions', () => adoptPartitions({ db, publisher, topic: 'none', lag: async () => 0n, ...misspelt })],
  ['startOutboxGauges', () => startOutboxGauges({ db, logger: silentLogger, ...misspelt })],
  ['listHeldKeys', () => listHeldKeys(db, misspelt)],
  ['listDeadLetters', () => listDeadLetters(db, misspelt)],
  ['migrate', () => migrate(db, messagingMigrations, 'messaging', misspelt)],
  ['migrateDown', () => migrateDown(db, messagingMigrations, 'messaging', misspelt)],
])('%s refuses an option that does not exist, by its name and without its value', async (_name, call) => {
  const refusal = await (async () => await call())().catch((error: unknown) => error)

  expect(refusal).toMatchObject({ code: 'MESSAGING_INVALID_OPTION', option: 'pasword' })
  expect(String(refusal)).toMatch(/Option pasword must be left out: there is no such option, only .*; it is a string$/)
})

test('what stands within another option is named with it', () => {
  const wrong = { ...threads, pasword: 'hunter2' }

  expect(() => startRelay({ db, threads: wrong })).toThrow('Option threads.pasword must be left out')
})

test('an option that is undefined was not given, be there one of the name or not', () => {
  expect(() => requireKnown({ none: undefined } as object, {})).not.toThrow()
  expect(withDefaults<{ a?: number }, 'a'>({ a: undefined } as object, { a: 1 })).toEqual({ a: 1 })
  expect(withDefaults<{ a?: number | null }, 'a'>({ a: null }, { a: 1 })).toEqual({ a: null })
})

test.each([
  [{ mechanism: 'scram-sha-1', username: 'u', password: 'p' }, 'sasl.mechanism must be plain, scram-sha-256'],
  [{ mechanism: 'scram-sha-256', username: 'u' }, 'sasl.password must be a string; it is missing'],
  [{ mechanism: 'scram-sha-256', username: '', password: 'hunter2' }, 'sasl.username must be a string; it is missing'],
  [{ mechanism: 'scram-sha-256', username: 'u', password: 7 }, 'sasl.password must be a string; it is another'],
  [{ mechanism: 'oauthbearer', token: 'hunter2' }, 'sasl.token must be a function; it is another'],
  [{ mechanism: 'scram-sha-256', user: 'u', password: 'hunter2' }, 'sasl.user must be left out'],
])('credentials that no broker could take are refused before any is asked, and not shown: %j', (sasl, rule) => {
  const create = () => createKafkaPublisher({ ...kafka, ssl: true, sasl: sasl as never })

  expect(create).toThrow(`Option ${rule}`)
  expect(create).not.toThrow('hunter2')
})

test('a time that no timer of Node can take is refused: it would be over at once', () => {
  const most = 'a positive whole number, at most 2147483647'

  expect(() => startConsumer({ ...consumer, handlerTimeoutMs: 2 ** 31 })).toThrow(`handlerTimeoutMs must be ${most}`)
  expect(() => startRelay({ db, publisher, graceMs: 2 ** 31 })).toThrow(`graceMs must be ${most}`)
  expect(() => createKafkaPublisher({ ...kafka, deliveryTimeoutMs: 2 ** 31 })).toThrow(
    `deliveryTimeoutMs must be ${most}`,
  )
  expect(() => startWakeNotifier(db, { intervalMs: Number.NaN })).toThrow(`intervalMs must be ${most}; it is NaN`)
  expect(() => startRelay({ db, publisher, leaseMs: 3_600_001 })).toThrow('leaseMs must be at most 3600000')
})

const wrong = <Part>(part: unknown): Part => part as Part
const adoption = { db, publisher, topic: 'order.events', lag: async () => 0n }
const key = { holder: 'relay', topic: 'order.events', aggregateType: 'order', aggregateId: '1' }
/** One that has begun nothing: what is refused is refused before. */
const trx = { isTransaction: true, isCompleted: () => false } as Knex.Transaction
const unknownTopic = () => {
  throw new RangeError('hunter2')
}
const ID = '01a22d02-357a-71c0-add4-7e16800a798d'

test.each<[string, () => unknown]>([
  ['name', () => startConsumer({ ...consumer, name: wrong(undefined) })],
  ['publisher', () => startRelay({ db, publisher: wrong(kafka) })],
  ['subscriber', () => startConsumer({ ...consumer, subscriber: wrong(kafka) })],
  ['db', () => startRelay({ db: wrong(undefined), publisher })],
  ['db', () => startRelay({ db: wrong('postgres://127.0.0.1/none'), publisher })],
  ['db', () => startConsumer({ ...consumer, db: wrong({}) })],
  ['threads.entry', () => startRelay({ db, threads: wrong({ count: 1 }) })],
  ['threads.entry', () => startRelay({ db, threads: { entry: new URL('none.ts', import.meta.url), count: 1 } })],
  ['threads.workerData', () => startRelay({ db, threads: { ...threads, workerData: wrong({}) } })],
  ['topicFor', () => startRelay({ db, publisher, topicFor: wrong('order.events') })],
  ['topicFor', () => appendToOutbox(db as Knex.Transaction, [], { topicFor: wrong('order.events') })],
  ['deriveIds', () => startConsumer({ ...consumer, deriveIds: wrong('yes') })],
  ['handleMany', () => defineSetHandler(['OrderPlaced'], wrong(undefined))],
  ['ssl', () => createKafkaPublisher({ ...kafka, ssl: wrong('true') })],
  ['logger', () => startRelay({ db, publisher, logger: wrong(5) })],
  ['logger', () => startConsumer({ ...consumer, logger: wrong(console.log) })],
  ['logger', () => createKafkaPublisher({ ...kafka, logger: wrong({}) })],
  ['clientId', () => createKafkaPublisher({ brokers: kafka.brokers, clientId: wrong(undefined) })],
  ['topics', () => startConsumer({ ...consumer, topics: ['a b'] })],
  ['topics', () => startConsumer({ ...consumer, topics: wrong('order.events') })],
  ['handlers.OrderPlaced', () => defineHandlers({ OrderPlaced: wrong<() => Promise<void>>(1) })],
  ['isolation', () => inTransaction(db, async () => {}, { isolation: wrong('serialisable') })],
  ['folder', () => migrate(db, wrong('migrations'), 'messaging')],
  ['holder', () => requestResume(db, wrong({ aggregateId: 'a' }))],
  ['createTopics', () => startRelay({ db, publisher, createTopics: wrong(true) })],
  ['options', () => startRelay(wrong(undefined))],
  ['options', () => startConsumer(wrong(undefined))],
  ['options', () => runRelayWorker(wrong(undefined))],
  ['options', () => adoptPartitions(wrong(undefined))],
  ['options', () => startOutboxGauges(wrong(undefined))],
  ['options', () => createKafkaPublisher(wrong(undefined))],
  ['options', () => createKafkaSubscriber(wrong(null))],
  ['options', () => countLag(wrong('order.events'))],
  ['options', () => startWakeNotifier(db, wrong(5))],
  ['options', () => listHeldKeys(db, wrong(null))],
  ['db', () => startWakeNotifier(wrong({ db }))],
  ['db', () => startOutboxGauges({ db: wrong(undefined), logger: silentLogger })],
  ['db', () => runRelayWorker({ line, db: wrong(undefined), publisher })],
  ['db', () => adoptPartitions({ ...adoption, db: wrong(undefined) })],
  ['db', () => assertSchema(wrong(undefined))],
  ['db', () => migrate(wrong(undefined), messagingMigrations, 'messaging')],
  ['db', () => listHeldKeys(wrong(undefined))],
  ['db', () => listDeadLetters(wrong({}))],
  ['db', () => readDeadLetter(wrong(undefined), 1n)],
  ['db', () => dismissForeignRecord(wrong(undefined), 1n)],
  ['db', () => requestSkip(wrong(undefined), key)],
  ['key', () => requestSkip(db, wrong(undefined))],
  ['component', () => migrate(db, messagingMigrations, wrong(undefined))],
  ['work', () => inTransaction(db, wrong(undefined))],
  ['line', () => runRelayWorker({ line: wrong({ post: () => {} }), db, publisher })],
  ['port', () => workerLine(wrong(null))],
  ['lag', () => adoptPartitions({ ...adoption, lag: wrong(0n) })],
  ['topic', () => adoptPartitions({ ...adoption, topic: '' })],
  ['publisher', () => adoptPartitions({ ...adoption, publisher: wrong(kafka) })],
  ['topic', () => countLag({ ...kafka, topic: wrong(undefined), groups: ['summary'] })],
  ['groups', () => countLag({ ...kafka, topic: 'order.events', groups: wrong('summary') })],
  ['state', () => listHeldKeys(db, { state: wrong('held') })],
  ['limit', () => listHeldKeys(db, { limit: wrong('all') })],
  ['holder', () => listHeldKeys(db, { holder: wrong(5) })],
  ['states', () => listDeadLetters(db, { states: wrong(['parked']) })],
  ['states', () => listDeadLetters(db, { states: wrong('dead') })],
  ['after', () => listDeadLetters(db, { after: wrong('5') })],
  ['limit', () => listDeadLetters(db, { limit: -1 })],
  ['seq', () => readDeadLetter(db, wrong('1'))],
  ['seq', () => dismissForeignRecord(db, 2n ** 63n)],
  ['db', () => migrate(wrong(messagingMigrations), wrong(db), 'messaging')],
  ['text', () => rawJson(wrong({ a: 1 }))],
  ['prefix', () => defaultTopicFor(wrong(5))],
  ['outbox', () => setOutboxName('')],
  ['share', () => setBatchTraceRatio(2)],
  ['on', () => setWaitSpans(wrong('true'))],
  ['handlers', () => defineHandlers({})],
  ['handlers', () => defineHandlers(wrong<object>(undefined))],
  ['types', () => defineSetHandler([], async () => {})],
  ['types', () => defineSetHandler<object>(wrong<never[]>([1]), async () => {})],
  ['aggregateTypeOf', () => startConsumer({ ...consumer, aggregateTypeOf: wrong('order') })],
  ['aggregateTypeOf', () => startConsumer({ ...consumer, aggregateTypeOf: unknownTopic })],
  ['aggregateTypeOf', () => startConsumer({ ...consumer, aggregateTypeOf: () => wrong(undefined) })],
  ['aggregateTypeOf', () => startConsumer({ ...consumer, aggregateTypeOf: () => wrong(Promise.resolve('order')) })],
  ['aggregateTypeOf', () => startConsumer({ ...consumer, aggregateTypeOf: () => '' })],
  ['aggregateTypeOf', () => startConsumer({ ...consumer, aggregateTypeOf: () => 'x'.repeat(250) })],
  ['consumer', () => processOnce(trx, '', { id: ID }, async () => {})],
  ['event.id', () => processOnce(trx, 'summary', { id: '7' }, async () => {})],
  ['handle', () => processOnce(trx, 'summary', { id: ID }, wrong(undefined))],
  ['createTopics.partitions', () => startRelay({ db, publisher, createTopics: wrong({ partitions: 3 }) })],
  ['name', () => startConsumer({ ...consumer, name: 'a\0' })],
  ['consumer', () => processOnce(trx, 'a\0', { id: ID }, async () => {})],
  ['holder', () => listHeldKeys(db, { holder: 'a\0' })],
  ['topic', () => listDeadLetters(db, { topic: 'a\0' })],
  ['aggregateId', () => requestSkip(db, { ...key, aggregateId: 'a\0' })],
])(
  'a part that is missing, or is something else, is refused by its name before anything runs: %s',
  async (option, call) => {
    await expect((async () => await call())()).rejects.toMatchObject({ code: 'MESSAGING_INVALID_OPTION', option })
  },
)

test('of a function that throws for a topic it is said for which, and never the message', () => {
  const start = () => startConsumer({ ...consumer, aggregateTypeOf: unknownTopic })

  expect(start).toThrow(/for order\.events; it is one that throws \(RangeError\)$/)
})

test('an address in the place of what it leads to is not shown: it may hold a password', () => {
  const address = 'postgres://orders:hunter2@127.0.0.1/orders'

  for (const start of [
    () => startRelay({ db: wrong(address), publisher }),
    () => createKafkaPublisher({ ...kafka, brokers: ['kafka://orders:hunter2@127.0.0.1:9092'] }),
  ]) {
    expect(start).toThrow('it is a text that is not shown')
    expect(start).not.toThrow('hunter2')
  }
})
