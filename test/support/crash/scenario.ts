/** What the process that dies is told, and what it does: known to it and to the test alike. */
import type { CrashTarget } from './points.ts'

export interface ChildSpec {
  readonly databaseUrl: string
  readonly brokers: readonly string[]
  /** What topics and the group begin with. */
  readonly prefix: string
  readonly pointsFile: string
  readonly historyFile: string
  readonly membersFile: string
  readonly crash: CrashTarget | null
}

/** One partition, so that all events share batches and transactions. */
export const PARTITIONS = 1
export const CONSUMER = 'effects'

export function topicOf({ prefix }: Pick<ChildSpec, 'prefix'>): string {
  return `${prefix}order.events`
}

export function groupOf({ prefix }: Pick<ChildSpec, 'prefix'>): string {
  return `${prefix}${CONSUMER}`
}

/** A customer's one order: placed, and then perhaps changed. */
export interface OrderPlan {
  readonly customerId: string
  readonly change: 'ship' | 'cancel' | null
}

/** Handled together, in one transaction. */
export const FIRST_ORDERS: readonly OrderPlan[] = [
  { customerId: 'placed', change: null },
  { customerId: 'shipped', change: 'ship' },
]

/** Its first event is refused until an operator has mended the cause; the second waits behind it. */
export const REFUSED: OrderPlan = { customerId: 'refused', change: 'cancel' }

/** Handled alone. */
export const LAST_ORDER: OrderPlan = { customerId: 'last', change: null }
