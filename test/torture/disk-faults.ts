/** What the nemesis can do to disks. */
import { rm } from 'node:fs/promises'
import { Kafka, logLevel } from 'kafkajs'
import { eventually } from '../../src/messaging/testing/index.ts'
import type { Arena } from './arena.ts'
import type { Dice, Fault } from './faults.ts'

/** Milliseconds until a broker has every record again, or a server answers. */
const BACK_MS = 120_000

/** Milliseconds that a broker has to miss its disk by itself. */
const NOTICE_MS = 30_000

const RM_RETRIES = 20

export const diskFaults: Readonly<Record<string, Fault>> = {
  'disk-full-postgres': {
    part: 'postgres',
    lastsMs: [1_000, 6_000],
    doubles: true,
    missing: ({ postgresVolume }) => (typeof postgresVolume === 'string' ? postgresVolume : null),
    inflict: fillDisk,
  },
  'log-dir-lost': { part: 'broker', lastsMs: [0, 3_000], doubles: true, inflict: loseLogDir },
}

/** Tables cannot grow; where the log cannot either, Postgres ends, and is started again once there is room. */
async function fillDisk({ postgresVolume, postgres, db }: Arena) {
  if (typeof postgresVolume === 'string') throw new Error(postgresVolume)
  await postgresVolume.fill()
  return async () => {
    await postgresVolume.makeRoom()
    const answers = async () => {
      // It may be about to end at this moment.
      if (postgres.pid === null) await postgres.start().catch(() => {})
      return await db.raw('select 1').then(
        () => true,
        () => false,
      )
    }
    await eventually('Postgres answers', answers, BACK_MS)
  }
}

/**
 * A broker's files are gone under it. It begins anew with nothing, and has
 * everything again before anything else is broken: that replicas are lost one
 * after the other faster than they are made is beyond any promise.
 */
async function loseLogDir({ kafka, brokers }: Arena, dice: Dice) {
  const isWhole = () => inSync(brokers)
  await eventually('every replica in sync', isWhole, BACK_MS)
  const node = dice.pick(kafka.nodes)
  // The broker goes on writing: a folder that was empty a moment ago has a file again.
  await rm(node.dataDir, { recursive: true, maxRetries: RM_RETRIES }).catch(() => {})
  await eventually('the broker misses its disk', () => node.pid === null, NOTICE_MS).catch(() => {})
  await node.kill('SIGKILL')
  await rm(node.dataDir, { recursive: true, force: true })
  return async () => {
    await node.start()
    await eventually('every replica in sync', isWhole, BACK_MS)
  }
}

/** Whether every replica of every topic is in sync; not while nobody can tell. */
async function inSync(brokers: readonly string[]): Promise<boolean> {
  const admin = new Kafka({ clientId: 'nemesis', brokers: [...brokers], logLevel: logLevel.NOTHING }).admin()
  try {
    await admin.connect()
    const { topics } = await admin.fetchTopicMetadata()
    return topics.every(({ partitions }) => partitions.every(({ isr, replicas }) => isr.length === replicas.length))
  } catch {
    return false
  } finally {
    await admin.disconnect().catch(() => {})
  }
}
