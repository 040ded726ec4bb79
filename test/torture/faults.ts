/** What the nemesis can do, by name. Each fault returns what mends it. */
import { setTimeout as sleep } from 'node:timers/promises'
import { Kafka, logLevel } from 'kafkajs'
import { AdoptionError, adoptPartitions, PublishError } from '../../src/messaging/index.ts'
import { countLag, createKafkaPublisher } from '../../src/messaging/kafka/index.ts'
import { api } from '../support/proxy/frames.ts'
import type { KafkaProxy } from '../support/proxy/kafka-proxy.ts'
import type { Service } from '../support/system/service.ts'
import type { Arena } from './arena.ts'
import { diskFaults } from './disk-faults.ts'

/** Milliseconds for an adoption beside another fault. */
const ADOPTION_MS = 30_000

/** Chance of one run. */
export interface Dice {
  /** A whole number from `low` to `high`. */
  between(low: number, high: number): number
  pick<Item>(items: readonly Item[]): Item
  chance(probability: number): boolean
}

export interface Fault {
  /** Faults of one part are never in force together. */
  readonly part: 'api' | 'relay' | 'consumer' | 'broker' | 'postgres' | 'network'
  /** Milliseconds for which it is in force. */
  readonly lastsMs: readonly [number, number]
  /** Whether the relay may send something again because of it. */
  readonly doubles: boolean
  /** What it needs and this machine does not have, as a sentence; `null` where all is there. @defaultValue nothing is needed */
  readonly missing?: (arena: Arena) => string | null
  /** Breaks it; what it resolves to mends it. */
  readonly inflict: (arena: Arena, dice: Dice) => Promise<() => Promise<void>>
}

export const faults: Readonly<Record<string, Fault>> = {
  'relay-kill': {
    part: 'relay',
    lastsMs: [0, 3_000],
    doubles: true,
    inflict: ({ relays }, dice) => killed(dice.pick(relays)),
  },
  'relay-freeze': {
    part: 'relay',
    lastsMs: [2_000, 12_000],
    doubles: true,
    inflict: ({ relays }, dice) => frozen(dice.pick(relays)),
  },
  'relay-term': {
    part: 'relay',
    lastsMs: [0, 2_000],
    // Beside another fault: what cannot be settled within the grace is cut off, and published again.
    doubles: true,
    inflict: ({ relays }, dice) => ended(dice.pick(relays)),
  },
  'consumer-kill': {
    part: 'consumer',
    lastsMs: [0, 3_000],
    doubles: false,
    inflict: ({ consumers }, dice) => killed(dice.pick(consumers)),
  },
  'consumer-freeze': {
    part: 'consumer',
    lastsMs: [2_000, 15_000],
    doubles: false,
    inflict: ({ consumers }, dice) => frozen(dice.pick(consumers)),
  },
  'api-kill': { part: 'api', lastsMs: [0, 500], doubles: false, inflict: ({ apis }, dice) => killed(dice.pick(apis)) },
  'broker-kill': {
    part: 'broker',
    lastsMs: [1_000, 10_000],
    doubles: true,
    inflict: ({ kafka }, dice) => down(dice.pick(kafka.nodes), 'SIGKILL'),
  },
  'broker-term': {
    part: 'broker',
    lastsMs: [1_000, 6_000],
    doubles: true,
    inflict: ({ kafka }, dice) => down(dice.pick(kafka.nodes), 'SIGTERM'),
  },
  'broker-freeze': {
    part: 'broker',
    lastsMs: [2_000, 15_000],
    doubles: true,
    inflict: ({ kafka }, dice) => stopped(dice.pick(kafka.nodes)),
  },
  'isr-below-min': { part: 'broker', lastsMs: [3_000, 10_000], doubles: true, inflict: belowMinimum },
  'backends-terminated': { part: 'postgres', lastsMs: [0, 0], doubles: true, inflict: terminateBackends },
  'postgres-fast': {
    part: 'postgres',
    lastsMs: [0, 2_000],
    doubles: true,
    inflict: ({ postgres }) => down(postgres, 'SIGINT'),
  },
  'postgres-immediate': {
    part: 'postgres',
    lastsMs: [0, 2_000],
    doubles: true,
    inflict: ({ postgres }) => down(postgres, 'SIGQUIT'),
  },
  'postgres-freeze': {
    part: 'postgres',
    lastsMs: [1_000, 4_000],
    doubles: true,
    inflict: ({ postgres }) => stopped(postgres),
  },
  'answers-lost': {
    part: 'network',
    lastsMs: [2_000, 8_000],
    doubles: true,
    inflict: ({ proxies }, dice) => ruled(proxies, dice, 'swallow answer'),
  },
  'answers-reset': {
    part: 'network',
    lastsMs: [2_000, 8_000],
    doubles: true,
    inflict: ({ proxies }, dice) => ruled(proxies, dice, 'reset for answer'),
  },
  'requests-lost': {
    part: 'network',
    lastsMs: [2_000, 8_000],
    doubles: true,
    inflict: ({ proxies }, dice) => ruled(proxies, dice, 'drop request'),
  },
  'requests-late': { part: 'network', lastsMs: [2_000, 8_000], doubles: true, inflict: late },
  'network-cut': { part: 'network', lastsMs: [500, 6_000], doubles: true, inflict: cut },
  'partitions-added': { part: 'broker', lastsMs: [0, 0], doubles: false, inflict: addPartitions },
  // It takes the lanes of workers that have not renewed in time: what they had sent goes again.
  'partitions-adopted': { part: 'broker', lastsMs: [0, 0], doubles: true, inflict: adoptAdded },
  ...diskFaults,
}

async function killed(service: Service) {
  await service.kill('SIGKILL')
  return async () => service.start()
}

async function ended(service: Service) {
  const how = await service.kill('SIGTERM')
  // While a database or a broker is away too, the grace ends first, and the exit code tells of it.
  if (how !== 'exit code 0' && how !== 'exit code 1') throw new Error(`${service.name} ended with ${how} after SIGTERM`)
  return async () => service.start()
}

async function frozen(service: Service) {
  await service.kill('SIGSTOP')
  return async () => {
    await service.kill('SIGCONT')
  }
}

interface Server {
  kill(signal: NodeJS.Signals): Promise<void>
  start(): Promise<void>
}

async function down(server: Server, signal: NodeJS.Signals) {
  await server.kill(signal)
  return () => server.start()
}

async function stopped(server: Server) {
  await server.kill('SIGSTOP')
  return () => server.kill('SIGCONT')
}

/** Two of three brokers are away: nothing can be acknowledged. */
async function belowMinimum({ kafka }: Arena, dice: Dice) {
  const survivor = dice.between(0, 2)
  const away = kafka.nodes.filter((_, index) => index !== survivor)
  await Promise.all(away.map((node) => node.kill('SIGKILL')))
  return async () => {
    await Promise.all(away.map((node) => node.start()))
  }
}

/** Ends every connection of the service, idle or not. */
async function terminateBackends({ db }: Arena) {
  await db.raw(
    `select pg_terminate_backend(pid)
       from pg_stat_activity
      where datname = current_database()
        and pid <> pg_backend_pid()
        and application_name <> ''`,
  )
  return async () => {}
}

/** A share of the produce requests of one broker, or of all, is treated so. */
async function ruled(
  proxies: readonly KafkaProxy[],
  dice: Dice,
  verdict: 'swallow answer' | 'reset for answer' | 'drop request',
) {
  const concerned = dice.chance(0.5) ? proxies : [dice.pick(proxies)]
  const share = dice.between(2, 8) / 10
  const ends = concerned.map((proxy) =>
    proxy.rule(({ apiKey }) => (apiKey === api.produce && dice.chance(share) ? verdict : 'pass')),
  )
  return async () => {
    for (const end of ends) end()
  }
}

async function late({ proxies }: Arena, dice: Dice) {
  const ends = proxies.map((proxy) =>
    proxy.rule(({ apiKey }) => (apiKey === api.produce ? { delayMs: dice.between(0, 1_500) } : 'pass')),
  )
  return async () => {
    for (const end of ends) end()
  }
}

async function cut({ proxies }: Arena, dice: Dice) {
  const proxy = dice.pick(proxies)
  proxy.cut()
  return async () => proxy.mend()
}

/** One partition more: the relay goes on with the count that it knows. */
async function addPartitions({ brokers }: Arena) {
  // A broker may be out of reach by another fault, for as long as that lasts.
  const retry = { retries: 20, maxRetryTime: 2_000 }
  const admin = new Kafka({ clientId: 'nemesis', brokers: [...brokers], retry, logLevel: logLevel.NOTHING }).admin()
  await admin.connect()
  try {
    const metadata = await admin.fetchTopicMetadata({ topics: ['order.events'] })
    const count = metadata.topics[0]?.partitions.length ?? 0
    await admin.createPartitions({ topicPartitions: [{ topic: 'order.events', count: count + 1 }] })
    await sleep(500)
  } finally {
    await admin.disconnect()
  }
  return async () => {}
}

/** One partition more, and the relays go over to them, unless another fault keeps them from it. */
async function adoptAdded(arena: Arena) {
  await addPartitions(arena)
  const { brokers, db } = arena
  const kafka = { brokers, clientId: 'nemesis' }
  const topic = 'order.events'
  const publisher = createKafkaPublisher(kafka)
  try {
    const lag = () => countLag({ ...kafka, topic, groups: ['orders-summary'] })
    await adoptPartitions({ db, publisher, topic, lag, timeoutMs: ADOPTION_MS })
  } catch (error) {
    if (!(error instanceof AdoptionError || error instanceof PublishError)) throw error
  } finally {
    await publisher.close()
  }
  return async () => {}
}
