/** The door for tests: the package's `./testing`. */
export { type ContractBroker, type ContractHarness, eventually, type FoundRecord } from './contract-harness.ts'
export { type Fault, type FaultRule, type FaultScope, Faults } from './faults.ts'
export { InMemoryBroker, type InMemoryBrokerOptions } from './in-memory-broker.ts'
export type { InMemoryPublisherOptions } from './in-memory-publisher.ts'
export type { StoredRecord } from './partition-log.ts'
export { publisherContract } from './publisher-contract.ts'
export { subscriberContract } from './subscriber-contract.ts'
