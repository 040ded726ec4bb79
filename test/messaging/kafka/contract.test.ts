import { afterAll, test } from '@jest/globals'
import { createKafkaPublisher, createKafkaSubscriber } from '../../../src/messaging/kafka/index.ts'
import type { ContractHarness } from '../../../src/messaging/testing/contract-harness.ts'
import { publisherContract } from '../../../src/messaging/testing/publisher-contract.ts'
import { subscriberContract } from '../../../src/messaging/testing/subscriber-contract.ts'
import type { Publisher } from '../../../src/messaging/transport.ts'
import { testBrokers, uniqueTopic } from '../../support/kafka.ts'
import { createWitness, type Witness } from './witness.ts'

let witness: Witness | undefined
afterAll(async () => {
  await witness?.close()
})

const harness: ContractHarness = {
  test,
  unique: uniqueTopic,
  tooLargeBytes: 2_000_000,
  open: async () => {
    witness ??= await createWitness(testBrokers())
    const { read, committed } = witness
    const options = { brokers: testBrokers(), clientId: 'contract' }
    const publishers: Publisher[] = []
    return {
      createPublisher: () => {
        const publisher = createKafkaPublisher(options)
        publishers.push(publisher)
        return publisher
      },
      createSubscriber: () => createKafkaSubscriber({ ...options, sessionTimeoutMs: 6_000 }),
      read,
      committed,
      [Symbol.asyncDispose]: async () => {
        await Promise.all(publishers.map((publisher) => publisher.close()))
      },
    }
  },
}

publisherContract(harness)
subscriberContract(harness)
