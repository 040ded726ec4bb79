import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { expect, test } from '@jest/globals'
import { createTestDatabase } from '../support/database.ts'
import { testBrokers } from '../support/kafka.ts'
import { ServiceProcess, until } from './service-process.ts'

const PLACE = `mutation { placeOrder(input: { customerId: "c", items: [{ sku: "s", quantity: 1, unitPriceCents: 7 }] }) { order { id } } }`

/** A port where nobody listens. */
const NOBODY = '127.0.0.1:1'

test('an environment that cannot be used ends the process with the names of what is wrong', async () => {
  await using service = new ServiceProcess({ ROLES: 'api,nonsense', PORT: 'x' })

  expect(await service.exited()).toBe(1)
  expect(service.log).toEqual([
    expect.objectContaining({
      level: 'error',
      problems: [
        expect.stringContaining('DATABASE_URL must be set'),
        expect.stringContaining('PORT must be'),
        expect.stringContaining('ROLES must be'),
      ],
    }),
  ])
})

test('a host that is none of this machine is said in one line', async () => {
  await using database = await createTestDatabase({ orders: true })
  // Set aside for documentation: nobody has it.
  await using service = new ServiceProcess({ DATABASE_URL: database.url, ROLES: 'api', HOST: '203.0.113.1' })

  expect(await service.exited()).toBe(1)
  expect(service.log.filter(({ level }) => level === 'error').map(({ msg }) => msg)).toEqual([
    'HOST is no name or address of this machine (EADDRNOTAVAIL): set it to 127.0.0.1, or 0.0.0.0 for all',
  ])
})

test('a port that is taken is said in one line', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using taken = createServer().listen(0, '127.0.0.1')
  await once(taken, 'listening')
  const { port } = taken.address() as AddressInfo
  await using service = new ServiceProcess({ DATABASE_URL: database.url, ROLES: 'api', PORT: String(port) })

  expect(await service.exited()).toBe(1)
  expect(service.log.filter(({ level }) => level === 'error').map(({ msg }) => msg)).toEqual([
    `Port ${port} is in use by another process: set PORT to a free one`,
  ])
})

test('PC-80: two services that start at once on an empty database share it, carry an order to its effect, and stop in good order', async () => {
  await using database = await createTestDatabase({ empty: true })
  const env = {
    DATABASE_URL: database.url,
    KAFKA_BROKERS: testBrokers().join(),
    TOPIC_PREFIX: `main-${randomBytes(4).toString('hex')}.`,
    TOPIC_PARTITIONS: '4',
  }
  await using one = new ServiceProcess(env)
  await using two = new ServiceProcess(env)
  await Promise.all([one.ready(), two.ready()])

  await Promise.all([one.send(PLACE), two.send(PLACE), one.send(PLACE)])
  await until(async () => {
    const last = JSON.stringify(await two.send('{ customerSummary(customerId: "c") { placedCount placedTotalCents } }'))
    return { done: last.includes('{"placedCount":3,"placedTotalCents":21}'), last }
  })

  one.kill('SIGTERM')
  two.kill('SIGINT')
  expect(await Promise.all([one.exited(), two.exited()])).toEqual([0, 0])
  for (const { log } of [one, two]) expect(log.filter(({ level }) => level === 'error')).toEqual([])
})

test('PC-09: without a broker mutations work, the API is ready and the relay is not, and a stop is in time', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using service = new ServiceProcess({ DATABASE_URL: database.url, KAFKA_BROKERS: NOBODY })
  await service.ready('/readyz/api')

  expect(await service.send(PLACE)).toMatchObject({ data: { placeOrder: { order: {} } } })
  await until(async () => {
    const last = await service.admin('/readyz/relay')
    return { done: last.status === 503 && last.body.includes('roker'), last }
  })

  expect((await service.admin('/readyz')).status).toBe(503)
  expect((await service.admin('/readyz/api')).status).toBe(200)
  const from = performance.now()
  service.kill('SIGTERM')
  await service.exited()
  // Ten seconds by its own clock, which is late on a busy machine; without a limit it would wait for the broker.
  expect(performance.now() - from).toBeLessThan(30_000)
})

test('without Postgres the process lives, is not ready, and can be stopped', async () => {
  await using service = new ServiceProcess({ DATABASE_URL: `postgres://user@${NOBODY}/orders`, ROLES: 'api' })
  const line = await service.line('Postgres cannot be reached yet')

  expect((await service.admin('/livez')).status).toBe(200)
  // A machine that is busy may find no time to hear of the refusal, and calls it no answer at first.
  await until(async () => {
    const last = await service.admin('/readyz')
    return { done: last.body.includes('api: Postgres cannot be reached (ECONNREFUSED)'), last }
  })
  expect((await service.admin('/readyz')).status).toBe(503)
  expect(JSON.stringify(line)).not.toContain(' at ')
  expect(service.log.filter(({ msg }) => msg.startsWith('Telemetry'))).toEqual([])
  service.kill('SIGTERM')
  expect(await service.exited()).toBe(0)
})

test('a login that Postgres refuses ends the process with one line that says what to look at', async () => {
  await using database = await createTestDatabase()
  const url = new URL(database.url)
  url.pathname = '/nowhere'
  await using service = new ServiceProcess({ DATABASE_URL: url.href, ROLES: 'api' })

  expect(await service.exited()).toBe(1)
  const errors = service.log.filter(({ level }) => level === 'error')
  expect(errors).toEqual([
    expect.objectContaining({ msg: expect.stringMatching(/^Postgres does not let us in: .*3D000.*DATABASE_URL/) }),
  ])
  expect(errors[0]).not.toHaveProperty('error')
})

test('without the preload of telemetry the process says once that it is off, and how to have it', async () => {
  const env = { DATABASE_URL: `postgres://user@${NOBODY}/orders`, ROLES: 'api' }
  await using service = new ServiceProcess(env, { telemetry: false })
  await service.line('Postgres cannot be reached yet')

  expect(service.log.filter(({ level, msg }) => level === 'warn' && msg.includes('--import'))).toHaveLength(1)
  expect((await service.admin('/metrics')).body).toContain('--import')
})

test('PC-78: a stop while the process is still starting ends it in good order', async () => {
  await using database = await createTestDatabase({ empty: true })
  await using service = new ServiceProcess({
    DATABASE_URL: database.url,
    KAFKA_BROKERS: testBrokers().join(),
    TOPIC_PREFIX: 'main-early.',
  })
  await service.line('The admin port listens')

  service.kill('SIGTERM')

  expect(await service.exited()).toBe(0)
})
