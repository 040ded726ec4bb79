import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { connect } from 'node:net'
import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { createTestDatabase } from '../support/database.ts'
import { untilLockWait } from '../support/sessions.ts'
import { input, PLACE, startApi } from './api.ts'

const MUTATION =
  'mutation { placeOrder(input: {customerId: "c", items: [{sku: "s", quantity: 1, unitPriceCents: 1}]}) { order { id } } }'

async function ordersIn(db: Knex): Promise<number> {
  return (await db.raw('select 1 from orders')).rows.length
}

test.each([
  ['as plain text', 'POST', 'text/plain', JSON.stringify({ query: MUTATION })],
  ['as a form', 'POST', 'application/x-www-form-urlencoded', `query=${encodeURIComponent(MUTATION)}`],
  [
    'as a multipart form',
    'POST',
    'multipart/form-data; boundary=x',
    `--x\r\ncontent-disposition: form-data; name="query"\r\n\r\n${MUTATION}\r\n--x--`,
  ],
  ['by GET', 'GET', '', ''],
  ['by GET with an invented content type', 'GET', 'nonsense/*', ''],
  ['by GET with a content type that asks for a preflight', 'GET', 'application/json', ''],
])('PC-67: a mutation sent %s changes nothing', async (_how, method, type, body) => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)
  const query = method === 'GET' ? `?query=${encodeURIComponent(MUTATION)}` : ''

  const response = await fetch(`${api.url}/graphql${query}`, {
    method,
    headers: type ? { 'content-type': type } : {},
    ...(body && { body }),
  })

  expect(response.status).toBeGreaterThanOrEqual(400)
  expect(response.status).toBeLessThan(500)
  expect(await ordersIn(database.db)).toBe(0)
})

test('a page of another origin gets no leave to read an answer', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)

  const response = await fetch(`${api.url}/graphql`, {
    method: 'OPTIONS',
    headers: { origin: 'https://evil.example', 'access-control-request-method': 'POST' },
  })

  expect(response.headers.get('access-control-allow-origin')).toBeNull()
})

function preflight(url: string, origin: string): Promise<Response> {
  return fetch(`${url}/graphql`, {
    method: 'OPTIONS',
    headers: {
      origin,
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'content-type',
    },
  })
}

test('a page whose origin is named may call and read, and no other may', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db, { corsOrigins: ['http://localhost:3000'] })
  const post = (origin: string) =>
    fetch(`${api.url}/graphql`, {
      method: 'POST',
      headers: { origin, 'content-type': 'application/json' },
      body: JSON.stringify({ query: '{ __typename }' }),
    })

  const asked = await preflight(api.url, 'http://localhost:3000')
  const answered = await post('http://localhost:3000')

  expect(asked.status).toBe(204)
  expect(asked.headers.get('access-control-allow-origin')).toBe('http://localhost:3000')
  expect(asked.headers.get('access-control-allow-headers')).toBe('content-type')
  expect(asked.headers.get('access-control-allow-credentials')).toBeNull()
  expect(answered.headers.get('access-control-allow-origin')).toBe('http://localhost:3000')
  expect(answered.headers.get('vary')).toContain('Origin')
  for (const origin of [
    'https://evil.example',
    'http://localhost:3001',
    'http://localhost:3000.evil.example',
    'null',
  ]) {
    const refused = await preflight(api.url, origin)
    expect(refused.status).toBe(403)
    expect(await refused.text()).toContain('CORS_ORIGINS')
    expect(refused.headers.get('access-control-allow-origin')).toBeNull()
    expect((await post(origin)).headers.get('access-control-allow-origin')).toBeNull()
  }
})

test('a browser that opens /graphql is sent to the page that one can use', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)
  const get = (accept: string) => fetch(`${api.url}/graphql`, { headers: { accept }, redirect: 'manual' })

  const browser = await get('text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8')
  const program = await get('application/json')

  expect(browser.status).toBe(302)
  expect(browser.headers.get('location')).toBe('/')
  expect(program.status).toBe(400)
})

test('a mutation that was refused before it ran speaks of no outbox', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)

  const response = await fetch(`${api.url}/graphql?query=${encodeURIComponent(MUTATION)}`, {
    headers: { 'apollo-require-preflight': 'true' },
  })

  expect(response.status).toBe(405)
  expect(await response.json()).not.toHaveProperty('extensions')
})

test('several operations in one body are refused', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)

  const response = await fetch(`${api.url}/graphql`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify([{ query: MUTATION }, { query: MUTATION }]),
  })

  expect(response.status).toBe(400)
  expect(await ordersIn(database.db)).toBe(0)
})

test.each([
  'text/plain',
  'text/html',
  'application/xml',
  'multipart/mixed',
  'application/json;q=0, text/plain',
  'application/json; charset=latin1',
])('a mutation whose sender reads %s alone is refused in JSON before it runs', async (accept) => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)

  const response = await placeAccepting(api.url, accept)

  expect(response.status).toBe(406)
  expect(await response.json()).toMatchObject({
    errors: [{ message: expect.stringContaining('Accept'), extensions: { code: 'BAD_REQUEST' } }],
  })
  expect(await ordersIn(database.db)).toBe(0)
})

test.each([
  '',
  '*/*',
  'application/*',
  'application/json',
  'application/json; charset=utf-8',
  'application/graphql-response+json',
  'text/html, application/json;q=0.1',
])('a mutation whose sender reads "%s" is answered', async (accept) => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)

  const response = await placeAccepting(api.url, accept)

  expect(response.status).toBe(200)
  expect(await response.json()).toHaveProperty('data.placeOrder.order.id')
})

test.each([
  ['charset', { 'content-type': 'application/json; charset=latin1' }],
  ['Content-Encoding', { 'content-type': 'application/json', 'content-encoding': 'zip' }],
])('a body whose %s cannot be read is refused by that name', async (name, headers) => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)

  const response = await fetch(`${api.url}/graphql`, {
    method: 'POST',
    headers: headers as Record<string, string>,
    body: JSON.stringify({ query: MUTATION }),
  })

  expect(response.status).toBe(415)
  expect(await response.json()).toMatchObject({
    errors: [{ message: expect.stringContaining(name), extensions: { code: 'BAD_REQUEST' } }],
  })
  expect(await ordersIn(database.db)).toBe(0)
})

test.each([
  ['no JSON', '{', 400],
  ['too large', JSON.stringify({ query: `{ order(id: "${'x'.repeat(300_000)}") { id } }` }), 413],
  ['too many tokens', JSON.stringify({ query: `{ ${'a: __typename '.repeat(2_000)} }` }), 400],
])('a body that is %s is refused in JSON, without a stack', async (_what, body, status) => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)

  const response = await fetch(`${api.url}/graphql`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
  })

  expect(response.status).toBe(status)
  const text = await response.text()
  expect(JSON.parse(text).errors).toHaveLength(1)
  expect(text).not.toContain('node_modules')
})

test('the page at / loads nothing from elsewhere', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)

  const response = await fetch(api.url)
  const page = await response.text()

  expect(page).toContain('POST /graphql')
  expect(page).not.toMatch(/(src|href)=/)
  expect(response.headers.get('content-security-policy')).toContain("default-src 'none'")
})

test('PC-63: a stop lets the running mutation commit and answer, closes idle connections and refuses new ones', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)
  const { port } = new URL(api.url)
  const idle = new Agent({ keepAlive: true, maxSockets: 10 })
  await Promise.all(Array.from({ length: 10 }, () => get(api.url, idle)))
  // The row lock holds the mutation back until the test lets it go.
  const { data } = await api.send(PLACE, { input })
  const { id } = data.placeOrder.order
  await using lock = await holdOrder(database.db, id)
  const answer = api.send(`mutation { shipOrder(id: "${id}") { order { phase } } }`)
  await untilLockWait(database.db)

  const stopping = api.server.stop()
  // What connects while the listener closes is reset; what comes later is refused.
  while ((await connectionTo(Number(port))) !== 'ECONNREFUSED');
  await lock.release()

  expect((await answer).data).toEqual({ shipOrder: { order: { phase: 'SHIPPED' } } })
  await stopping
  idle.destroy()
})

test('a stop cuts what does not end within the grace period', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db, { graceMs: 200 })
  const { data } = await api.send(PLACE, { input })
  const { id } = data.placeOrder.order
  await using _lock = await holdOrder(database.db, id)
  const answer = api.send(`mutation { shipOrder(id: "${id}") { order { phase } } }`).catch(() => 'cut')
  await untilLockWait(database.db)

  await api.server.stop()

  expect(await answer).toBe('cut')
})

test('a stop waits for a mutation whose client has gone', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)
  const { data } = await api.send(PLACE, { input })
  const { id } = data.placeOrder.order
  await using lock = await holdOrder(database.db, id)
  const client = new AbortController()
  const gone = fetch(`${api.url}/graphql`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query: `mutation { shipOrder(id: "${id}") { order { id } } }` }),
    signal: client.signal,
  }).catch(() => 'gone')
  await untilLockWait(database.db)
  client.abort()
  await gone

  const stopping = api.server.stop().then(() => 'stopped')
  const first = await Promise.race([stopping, lock.release().then(() => 'released')])
  await stopping

  expect(first).toBe('released')
  expect((await database.db.raw('select phase from orders')).rows).toEqual([{ phase: 'shipped' }])
})

/** Locks an order's row, so that a command on it waits, until released. */
async function holdOrder(db: Knex, id: string): Promise<AsyncDisposable & { release(): Promise<void> }> {
  const trx = await db.transaction()
  await trx.raw('select 1 from orders where id = ? for update', [id])
  const release = async () => {
    if (!trx.isCompleted()) await trx.rollback()
  }
  return { release, [Symbol.asyncDispose]: release }
}

async function get(url: string, agent: Agent): Promise<void> {
  const [response] = await once(request(url, { agent }).end(), 'response')
  response.resume()
  await once(response, 'end')
}

/** Why a connection to `port` fails, or `connected`. */
async function connectionTo(port: number): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  try {
    await once(socket, 'connect')
    return 'connected'
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? 'unknown'
  } finally {
    socket.destroy()
  }
}

/** Places an order as a sender that reads answers of these media types alone. */
function placeAccepting(url: string, accept: string): Promise<Response> {
  return fetch(`${url}/graphql`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept },
    body: JSON.stringify({ query: MUTATION }),
  })
}
