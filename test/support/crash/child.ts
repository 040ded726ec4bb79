/**
 * The process that dies: the write path, a relay and a consumer over Kafka, as
 * they are. It does what is left to do and ends with 0; started again after a
 * death it goes on from what it finds in the database, as a service does.
 */
import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { Kafka, logLevel } from 'kafkajs'
import knex, { type Knex } from 'knex'
import {
  defaultTopicFor,
  defineHandlers,
  listHeldKeys,
  type ReceivedEvent,
  requestResume,
  startConsumer,
  startRelay,
} from '../../../src/messaging/index.ts'
import { createKafkaPublisher, createKafkaSubscriber } from '../../../src/messaging/kafka/index.ts'
import { withCluster } from '../../../src/messaging/kafka/inside.ts'
import { recordHistory } from '../../../src/messaging/testing/index.ts'
import { cancelOrder, placeOrder, shipOrder } from '../../../src/orders/commands.ts'
import { Points } from './points.ts'
import {
  type ChildSpec,
  CONSUMER,
  FIRST_ORDERS,
  groupOf,
  LAST_ORDER,
  type OrderPlan,
  PARTITIONS,
  REFUSED,
  topicOf,
} from './scenario.ts'
import { watchPublisher, watchRequests, watchStatements, watchSubscriber } from './watch.ts'

/** Milliseconds after which a child ends whose parent was killed: nobody else would. */
const LIMIT_MS = 300_000
setTimeout(() => process.exit(3), LIMIT_MS).unref()

const spec = JSON.parse(process.argv[2] ?? '') as ChildSpec
const points = new Points(spec.pointsFile, spec.crash)
const history = recordHistory(spec.historyFile)
watchStatements(points)
watchRequests(points, (memberId) => appendFileSync(spec.membersFile, `${memberId}\n`))

const look = createPool('')
const write = createPool('write')
await forgetDeadMembers()

const publisher = watchPublisher(createKafkaPublisher({ brokers: spec.brokers, clientId: 'crash-relay' }), points)
const relayPool = createPool('relay')
await carryOut(FIRST_ORDERS)
const relay = startRelay({
  db: relayPool,
  publisher,
  topicFor: defaultTopicFor(spec.prefix),
  createTopics: { partitionCount: PARTITIONS, replicationFactor: 1 },
  pollIntervalMs: 250,
  // Longer than a busy machine keeps anybody waiting: a lease that ends by itself would double events that no crash has.
  leaseMs: 3_000,
})
await until('select 1 from outbox where published_at is null')

const consumerPool = createPool('consumer')
const subscriber = createKafkaSubscriber({
  brokers: spec.brokers,
  clientId: 'crash-consumer',
  sessionTimeoutMs: 6_000,
  maxWaitMs: 50,
})
const consumer = startConsumer({
  name: CONSUMER,
  topicPrefix: spec.prefix,
  topics: [topicOf(spec)],
  db: consumerPool,
  subscriber: watchSubscriber(subscriber, points),
  handlers: defineHandlers({ OrderPlaced: handle, OrderShipped: handle, OrderCancelled: handle }),
  maxAttempts: 1,
})
await untilProcessed(FIRST_ORDERS)

await carryOut([REFUSED])
await settleRefused()
await untilProcessed([...FIRST_ORDERS, REFUSED])
await carryOut([LAST_ORDER])
await untilProcessed([LAST_ORDER])
await until('select 1 from held_keys union all select 1 from outbox where published_at is null')
await consumer.whenCaughtUp()

await consumer.stop()
await relay.stop()
await publisher.close()
await Promise.all([look, write, relayPool, consumerPool].map((pool) => pool.destroy()))

function createPool(role: string): Knex {
  const connection = { connectionString: spec.databaseUrl, application_name: role }
  return knex({ client: 'pg', connection, pool: { min: 0, max: 3 } })
}

/** Places and changes orders as a client does that asks first what became of an unanswered request. */
async function carryOut(plans: readonly OrderPlan[]): Promise<void> {
  for (const { customerId, change } of plans) {
    let order = await orderOf(customerId)
    if (!order) {
      const placing = history.invoke('client', 'placeOrder')
      const items = [{ sku: placing.operation, quantity: 1, unitPriceCents: 100 }]
      const placed = await placeOrder(write, { customerId, items })
      placing.ok({ eventIds: placed.eventIds, aggregateId: placed.order.id })
      order = placed.order
    }
    if (change === null || order.phase !== 'placed') continue
    const changing = history.invoke('client', `${change}Order`, { aggregateId: order.id })
    const { id } = order
    const changed = change === 'ship' ? shipOrder(write, id) : cancelOrder(write, id, changing.operation)
    changing.ok({ eventIds: (await changed).eventIds })
  }
}

async function orderOf(customerId: string): Promise<{ id: string; phase: string } | undefined> {
  return await look('orders').where({ customer_id: customerId }).first('id', 'phase')
}

/** Writes an effect, without a key that would hide a second one; refuses the refused customer while there is a cause. */
async function handle(trx: Knex.Transaction, event: ReceivedEvent): Promise<void> {
  const { customerId } = event.payload as { customerId: string }
  if (customerId === REFUSED.customerId && (await trx('refusals').first()) !== undefined)
    throw new RangeError('refused')
  await trx('effects').insert({ event_id: event.id })
}

/** The operator: mends the cause once the key is parked, and resumes it. A resume asked for before a death stands. */
async function settleRefused(): Promise<void> {
  while ((await look('refusals').first()) !== undefined) {
    const parked = await listHeldKeys(look)
    if (parked.some(({ state }) => state === 'parked')) await look('refusals').delete()
    else await sleep(20)
  }
  for (const key of await listHeldKeys(look)) {
    if (key.holder === groupOf(spec)) await requestResume(look, key)
  }
}

async function untilProcessed(plans: readonly OrderPlan[]): Promise<void> {
  const customers = plans.map(({ customerId }) => `'${customerId}'`).join()
  await until(
    `select 1
       from order_events
       join orders on orders.id = order_events.order_id
      where orders.customer_id in (${customers})
        and not exists (select 1 from processed_events where processed_events.event_id = order_events.event_id)`,
  )
}

/** Waits until `sql` finds nothing. */
async function until(sql: string): Promise<void> {
  for (;;) {
    const { rows } = await look.raw<{ rows: unknown[] }>(`${sql} limit 1`)
    if (rows.length === 0) return
    await sleep(20)
  }
}

/** Tells the group of members that died. It would find out by itself, one session timeout later. */
async function forgetDeadMembers(): Promise<void> {
  if (!existsSync(spec.membersFile)) return
  const kafka = new Kafka({ clientId: 'undertaker', brokers: [...spec.brokers], logLevel: logLevel.NOTHING })
  const { client: admin, cluster } = withCluster(kafka, () => kafka.admin())
  await admin.connect()
  const groupId = groupOf(spec)
  const coordinator = (await cluster.findGroupCoordinator({ groupId })) as unknown as {
    leaveGroup(member: { groupId: string; memberId: string }): Promise<unknown>
  }
  const members = readFileSync(spec.membersFile, 'utf8').split('\n')
  for (const memberId of members.filter((line) => line !== '')) {
    // One that has left already is unknown.
    await coordinator.leaveGroup({ groupId, memberId }).catch(() => {})
  }
  await admin.disconnect()
}
