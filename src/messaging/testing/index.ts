/** The door for tests: the package's `./testing`. */
export { type ContractBroker, type ContractHarness, eventually, type FoundRecord } from './contract-harness.ts'
export { type Fault, type FaultRule, type FaultScope, Faults } from './faults.ts'
export { checkHistory, type Verdict } from './history/check-history.ts'
export {
  type CommittedEvent,
  type ConsumerEvidence,
  type Evidence,
  type HistoryEntry,
  noEvidence,
  type ObservedRecord,
} from './history/evidence.ts'
export { INVARIANTS, type Invariant, type Violation } from './history/findings.ts'
export { type HistoryRecorder, type Invocation, readHistory, recordHistory } from './history/recorder.ts'
export { installShadow, observe, readShadow, type ShadowReading, shadowsFromTheStart } from './history/shadow.ts'
export { InMemoryBroker, type InMemoryBrokerOptions } from './in-memory-broker.ts'
export type { InMemoryPublisherOptions } from './in-memory-publisher.ts'
export type { StoredRecord } from './partition-log.ts'
export { publisherContract } from './publisher-contract.ts'
export { subscriberContract } from './subscriber-contract.ts'
