import { expect, test } from '@jest/globals'
import * as library from '../../src/messaging/index.ts'
import * as kafka from '../../src/messaging/kafka/index.ts'
import * as testing from '../../src/messaging/testing/index.ts'

/** What leaves is a promise to users: a name is added here on purpose, and removed with a new major version. */
test('the library exports these names and no others', () => {
  expect(Object.keys(library).sort()).toEqual([
    'AdoptionError',
    'CommitUnknownError',
    'InvalidEventError',
    'InvalidOptionError',
    'MessagingError',
    'NotInTransactionError',
    'PublishError',
    'RolledBackError',
    'SchemaMismatchError',
    'adoptPartitions',
    'appendToOutbox',
    'assertSchema',
    'backoffMs',
    'defaultTopicFor',
    'defineHandlers',
    'defineSetHandler',
    'dismissForeignRecord',
    'inTransaction',
    'lastingState',
    'listDeadLetters',
    'listHeldKeys',
    'messagingMigrations',
    'migrate',
    'migrateDown',
    'processOnce',
    'rawJson',
    'readDeadLetter',
    'requestResume',
    'requestRetryNow',
    'requestSkip',
    'run',
    'runRelayWorker',
    'setBatchTraceRatio',
    'setOutboxName',
    'setWaitSpans',
    'silentLogger',
    'startConsumer',
    'startOutboxGauges',
    'startRelay',
    'startWakeNotifier',
    'systemClock',
    'workerLine',
  ])
})

test('the Kafka entry exports these names and no others', () => {
  expect(Object.keys(kafka).sort()).toEqual(['countLag', 'createKafkaPublisher', 'createKafkaSubscriber'])
})

test('the testing entry exports these names and no others', () => {
  expect(Object.keys(testing).sort()).toEqual([
    'Faults',
    'INVARIANTS',
    'InMemoryBroker',
    'checkHistory',
    'eventually',
    'installShadow',
    'noEvidence',
    'observe',
    'publisherContract',
    'readHistory',
    'readShadow',
    'recordHistory',
    'shadowsFromTheStart',
    'subscriberContract',
  ])
})
