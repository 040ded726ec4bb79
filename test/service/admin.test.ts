import { expect, test } from '@jest/globals'
import { type Status, silentLogger } from '../../src/messaging/index.ts'
import { startAdminServer } from '../../src/service/admin.ts'
import type { Role } from '../../src/service/config.ts'
import { createHealth } from '../../src/service/health.ts'
import { createProbe } from '../../src/service/probe.ts'

const fine: Status = { ready: true, problems: [] }

async function startAdmin(
  checks: Partial<Record<Role, () => Promise<Status>>>,
  { roles = ['api', 'relay'], metrics = 'up 1\n' }: { roles?: readonly Role[]; metrics?: string } = {},
) {
  const health = createHealth(roles, checks)
  const admin = await startAdminServer({
    host: '127.0.0.1',
    port: 0,
    health,
    metrics: async () => metrics,
    logger: silentLogger,
  })
  const get = async (path: string, method = 'GET') => {
    const response = await fetch(`${admin.url}${path}`, { method })
    const text = await response.text()
    return { status: response.status, body: text.startsWith('{') ? JSON.parse(text) : text }
  }
  return { health, get, [Symbol.asyncDispose]: () => admin.stop() }
}

test('the process is ready when every role is, and each role answers for itself', async () => {
  const broken: Status = { ready: false, problems: ['Topic order.events is paused: TOPIC_AUTHORIZATION_FAILED'] }
  await using admin = await startAdmin({ api: async () => fine, relay: async () => broken })

  expect(await admin.get('/readyz/api')).toEqual({ status: 200, body: fine })
  expect(await admin.get('/readyz/relay')).toEqual({ status: 503, body: broken })
  expect(await admin.get('/readyz')).toEqual({
    status: 503,
    body: { ready: false, problems: [`relay: ${broken.problems[0]}`], roles: { api: fine, relay: broken } },
  })
  expect((await admin.get('/readyz/consumer')).status).toBe(404)
})

test('a role that has not started is not ready, and the process lives', async () => {
  await using admin = await startAdmin({ api: async () => fine })

  expect(await admin.get('/readyz/relay')).toEqual({ status: 503, body: { ready: false, problems: ['Starting'] } })
  expect((await admin.get('/livez')).status).toBe(200)
})

test('a role that has not started says what it waits for while it does', async () => {
  await using admin = await startAdmin({ api: async () => fine })
  const reason = 'Postgres cannot be reached (ECONNREFUSED)'

  admin.health.waitsFor(reason)
  const waiting = await admin.get('/readyz')
  admin.health.waitsFor(null)

  expect(waiting.body).toMatchObject({ ready: false, problems: [`relay: ${reason}`], roles: { api: fine } })
  expect((await admin.get('/readyz')).body).toMatchObject({ ready: false, problems: ['relay: Starting'] })
})

test('a process that stops is ready for nothing', async () => {
  await using admin = await startAdmin({ api: async () => fine, relay: async () => fine })
  expect((await admin.get('/readyz')).status).toBe(200)

  admin.health.drain()

  expect((await admin.get('/readyz')).status).toBe(503)
  expect((await admin.get('/readyz/api')).body).toEqual({ ready: false, problems: ['Stopping'] })
  expect((await admin.get('/livez')).status).toBe(200)
})

test('metrics are text, and nothing else is answered', async () => {
  await using admin = await startAdmin({})

  expect(await admin.get('/metrics')).toEqual({ status: 200, body: 'up 1\n' })
  expect((await admin.get('/readyz', 'POST')).status).toBe(405)
  expect((await admin.get('/')).status).toBe(404)
})

test('a process without telemetry says how to have metrics, in a comment that a scraper reads as none', async () => {
  await using admin = await startAdmin({}, { metrics: '' })

  const { status, body } = await admin.get('/metrics')

  expect(status).toBe(200)
  expect(body).toMatch(/^# No metrics: .*--import src\/service\/telemetry.ts.*\n$/)
})

test('a check that hangs is reported in time, and asked once', async () => {
  let asked = 0
  const { promise, resolve } = Promise.withResolvers<void>()
  const probe = createProbe(
    async () => {
      asked += 1
      await promise
    },
    { timeoutMs: 10, freshMs: 60_000, problem: 'It does not answer' },
  )

  const first = await Promise.all([probe(), probe(), probe()])
  const second = await probe()
  resolve()

  expect([...first, second]).toEqual(Array(4).fill({ ready: false, problems: ['It does not answer'] }))
  expect(asked).toBe(1)
  expect(await probe()).toEqual(fine)
})

test('an answer stands for a while, and a failure says nothing of its cause', async () => {
  let asked = 0
  const probe = createProbe(
    async () => {
      asked += 1
      throw new Error('password=secret')
    },
    { timeoutMs: 1_000, freshMs: 60_000, problem: 'It does not answer' },
  )

  expect(await probe()).toEqual({ ready: false, problems: ['It does not answer'] })
  await probe()

  expect(asked).toBe(1)
})
