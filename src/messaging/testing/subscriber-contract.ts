/** What every subscriber keeps: the promises of the port, as tests. */
import type { ContractHarness } from './contract-harness.ts'
import { deliveryContract } from './subscriber-delivery-contract.ts'
import { membershipContract } from './subscriber-membership-contract.ts'
import { offsetContract } from './subscriber-offset-contract.ts'

/** Registers the tests of the subscriber's contract. */
export function subscriberContract(harness: ContractHarness): void {
  deliveryContract(harness)
  offsetContract(harness)
  membershipContract(harness)
}
