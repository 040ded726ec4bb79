/** The primary dies and its standby takes its place: with synchronous replication nothing is lost; without, the judge says what was. */
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import knex, { type Knex } from 'knex'
import { type Kafka, startKafka } from '../../src/local/kafka.ts'
import { installShadow } from '../../src/messaging/testing/history/shadow.ts'
import { type PostgresPair, startPostgresPair } from '../support/postgres-pair.ts'
import { createPostgresProxy, type PostgresProxy } from '../support/postgres-proxy.ts'
import { type Service, startService } from '../support/system/service.ts'
import { codesIn, createTrials, type Trials, VALID } from '../support/system/trial.ts'

/** A service that reaches a pair of Postgres servers by way of a proxy, as by an address that follows the primary. */
interface Setting extends AsyncDisposable {
  readonly pair: PostgresPair
  readonly proxy: PostgresProxy
  readonly db: Knex
  readonly service: Service
  readonly trials: Trials
}

async function createSetting(): Promise<Setting> {
  await using failed = new AsyncDisposableStack()
  const dir = await mkdtemp(join(tmpdir(), 'graphql-outbox-failover-'))
  await chmod(dir, 0o755)
  failed.defer(() => rm(dir, { recursive: true, force: true }))
  const [pair, kafka] = await Promise.all([startPostgresPair(dir), startBroker(dir)])
  failed.use(pair)
  failed.defer(() => kafka.kill())
  const proxy = failed.use(await createPostgresProxy(pair.primary.url()))
  const silent = { warn: () => {}, error: () => {}, deprecate: () => {}, debug: () => {} }
  const db = knex({ client: 'pg', connection: proxy.url, pool: { min: 0, max: 4 }, log: silent })
  failed.defer(() => db.destroy())
  const env = { DATABASE_URL: proxy.url, KAFKA_BROKERS: kafka.brokers.join() }
  const service = failed.use(await startService({ name: 'service', roles: ['api', 'relay', 'consumer'], env, dir }))
  await service.until(true)
  await installShadow(db)
  const trials = createTrials({ db, brokers: kafka.brokers, dir, services: [service] })
  const stack = failed.move()
  return { pair, proxy, db, service, trials, [Symbol.asyncDispose]: () => stack.disposeAsync() }
}

async function startBroker(dir: string): Promise<Kafka> {
  return await startKafka({ dir: join(dir, 'kafka'), heapMb: 384, jvm: ['-XX:TieredStopAtLevel=1'] })
}

test('F5 a failover to a synchronous standby under load loses nothing, and nobody is started anew', async () => {
  await using setting = await createSetting()
  const { pair, proxy, service, db } = setting
  const { pid } = service
  await pair.replicate('synchronously')

  const { verdict, history } = await setting.trials.run('failover', async (load) => {
    await pair.failOver()
    proxy.leadTo(pair.standby.url())
    await service.until(true, { withinMs: 120_000 })
    await load.reached(load.okCount + 100)
  })

  expect(verdict).toMatchObject(VALID)
  expect(codesIn(history)).not.toContain('INTERNAL')
  expect(service.pid).toBe(pid)
  const { rows } = await db.raw<{ rows: { timeline: string }[] }>(
    'select left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) as timeline',
  )
  expect(rows[0]?.timeline).toBe('00000002')
  expect(await db('held_keys').select('aggregate_id')).toEqual([])
}, 600_000)

test('F5 what a failover to a standby that lags behind loses does not escape the judge', async () => {
  await using setting = await createSetting()
  const { pair, proxy, service } = setting

  const { verdict } = await setting.trials.run('failover with a lost tail', async (load) => {
    await pair.cutReplication()
    await load.reached(load.okCount + 50)
    await pair.failOver()
    proxy.leadTo(pair.standby.url())
    await service.until(true, { withinMs: 120_000 })
    await load.reached(load.okCount + 50)
  })

  // Answered with ok and gone; and on the topic without a row.
  expect(verdict.verdict).toBe('invalid')
  expect(Object.keys(verdict.violationCounts)).toEqual(expect.arrayContaining(['I2', 'I4']))
}, 600_000)
