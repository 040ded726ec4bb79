import { randomBytes } from 'node:crypto'
import { test } from '@jest/globals'
import type { ContractHarness } from '../../../src/messaging/testing/contract-harness.ts'
import { InMemoryBroker } from '../../../src/messaging/testing/in-memory-broker.ts'
import { publisherContract } from '../../../src/messaging/testing/publisher-contract.ts'
import { subscriberContract } from '../../../src/messaging/testing/subscriber-contract.ts'

const harness: ContractHarness = {
  test,
  unique: (name) => `${name}-${randomBytes(4).toString('hex')}`,
  tooLargeBytes: 2_000_000,
  open: async () => {
    const broker = new InMemoryBroker()
    return {
      createPublisher: () => broker.createPublisher(),
      createSubscriber: () => broker.createSubscriber(),
      read: async ({ topic, partition }) => broker.records(topic, partition),
      committed: async (groupId, where) => broker.committed(groupId, where),
      [Symbol.asyncDispose]: () => broker.close(),
    }
  },
}

publisherContract(harness)
subscriberContract(harness)
