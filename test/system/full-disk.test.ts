/** A Postgres whose disk is full: its tables cannot grow, or its log cannot, which ends it. */
import { chmod, mkdir, mkdtemp, readFile, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import type { Postgres } from '../../src/local/postgres.ts'
import { installShadow } from '../../src/messaging/testing/history/shadow.ts'
import { eventually } from '../../src/messaging/testing/index.ts'
import type { Load } from '../support/system/load.ts'
import { type Service, startService } from '../support/system/service.ts'
import { type SystemStack, startSystemStack } from '../support/system/stack.ts'
import { codesIn, createTrials, type Trials, VALID } from '../support/system/trial.ts'
import { createVolume, type Volume, volumeProblem } from '../support/volume.ts'

const problem = await volumeProblem()
const withVolume = problem === null ? test : test.skip
const named = (title: string) => (problem === null ? title : `${title} (not run: ${problem})`)

let dir: string
let volume: Volume
let stack: SystemStack
let service: Service
let trials: Trials
beforeAll(async () => {
  if (problem !== null) return
  dir = await mkdtemp(join(tmpdir(), 'graphql-outbox-full-'))
  await chmod(dir, 0o755)
  volume = await createVolume({ dir, megabytes: 500 })
  const postgresDir = join(volume.dir, 'postgres')
  await mkdir(postgresDir)
  // What the server says goes to another disk: on the full one its last words could be missing.
  await symlink(join(dir, 'postgres.log'), join(postgresDir, 'postgres.log'))
  // A log of constant size: a full disk stays full.
  const settings = { min_wal_size: '64MB', max_wal_size: '64MB' }
  stack = await startSystemStack({ postgres: { dir: postgresDir, settings } })
  service = await startService({ name: 'service', roles: ['api', 'relay', 'consumer'], env: stack.env, dir: stack.dir })
  await service.until(true)
  await installShadow(stack.db)
  trials = createTrials({ db: stack.db, brokers: stack.kafka.brokers, dir: stack.dir, services: [service] })
})
afterAll(async () => {
  await service?.[Symbol.asyncDispose]()
  await stack?.[Symbol.asyncDispose]()
  await volume?.[Symbol.asyncDispose]()
  if (dir !== undefined) await rm(dir, { recursive: true, force: true })
})

withVolume(
  named('F6 while the disk is full mutations fail whole and by name, and all goes on once there is room'),
  async () => {
    const { pid } = service
    const { verdict, history } = await trials.run('full tables', async (load) => {
      await volume.fill()
      await nothingSucceeds(load)
      expect(stack.postgres.pid).not.toBeNull()
      await volume.makeRoom()
      await load.reached(load.okCount + 50)
    })

    expect(verdict).toMatchObject(VALID)
    expect(codesIn(history)).toContain('SERVICE_UNAVAILABLE')
    expect(codesIn(history)).not.toContain('INTERNAL')
    expect(service.pid).toBe(pid)
    expect(await stack.db('held_keys').select('aggregate_id')).toEqual([])
  },
  600_000,
)

withVolume(
  named('F6 a Postgres that ends because its log cannot be written is waited for, and comes back with all it had said'),
  async () => {
    const { pid } = service
    const { verdict, history } = await trials.run('full log', async (load) => {
      await volume.fill()
      await fillLog(stack.postgres)
      await nothingSucceeds(load)
      await volume.makeRoom()
      await eventually('Postgres is back', () => isBack(stack), 120_000)
      await service.until(true, { withinMs: 120_000 })
      await load.reached(load.okCount + 50)
    })

    expect(verdict).toMatchObject(VALID)
    expect(codesIn(history)).not.toContain('INTERNAL')
    expect(service.pid).toBe(pid)
    expect(await stack.db('held_keys').select('aggregate_id')).toEqual([])
  },
  600_000,
)

/** Resolves once thirty mutations in a row have failed. */
async function nothingSucceeds(load: Load): Promise<void> {
  const { failedCount } = load
  let from = { ok: load.okCount, failed: failedCount }
  await eventually(
    'mutations fail',
    () => {
      if (load.okCount > from.ok) from = { ok: load.okCount, failed: load.failedCount }
      return load.failedCount >= from.failed + 30
    },
    120_000,
  )
}

/** Begins new files of the log until the server ends for want of room. */
async function fillLog({ logFile }: Postgres): Promise<void> {
  await eventually(
    'the log is full',
    async () => {
      await stack.db.raw('select pg_switch_wal(), pg_logical_emit_message(true, $$test$$, $$x$$)').catch(() => {})
      return (await readFile(logFile, 'utf8')).includes('PANIC:')
    },
    120_000,
  )
}

/** Whether it answers; where it has ended, as an operator would find it, it is started. */
async function isBack({ postgres, db }: SystemStack): Promise<boolean> {
  if (postgres.pid === null) await postgres.start().catch(() => {})
  return await db.raw('select 1').then(
    () => true,
    () => false,
  )
}
