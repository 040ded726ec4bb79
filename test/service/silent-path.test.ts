/** Connections to Postgres that have fallen silent, as after a firewall's restart: nothing on them ever ends by itself. */
import { expect, test } from '@jest/globals'
import { inTransaction, silentLogger, startRelay } from '../../src/messaging/index.ts'
import { appendToOutbox } from '../../src/messaging/outbox/append.ts'
import { eventually, InMemoryBroker } from '../../src/messaging/testing/index.ts'
import { createDatabase } from '../../src/service/database.ts'
import { parsePostgresUrl } from '../../src/service/postgres-url.ts'
import { createTestDatabase } from '../support/database.ts'
import { orderEvent } from '../support/events.ts'
import { createPostgresProxy } from '../support/postgres-proxy.ts'

/** As in service, with a quarter of the patience. */
const hasty = { statementTimeoutMs: 2_000, queryTimeoutMs: 2_500, acquireTimeoutMs: 5_000 }

test('PC-36: a relay and mutations whose connections have all fallen silent go on over new ones within seconds', async () => {
  await using database = await createTestDatabase()
  await using proxy = await createPostgresProxy(database.url)
  const server = parsePostgresUrl(proxy.url)
  const [relayPool, apiPool] = [
    createDatabase(server, 'relay', silentLogger, hasty),
    createDatabase(server, 'api', silentLogger, hasty),
  ]
  await using pools = new AsyncDisposableStack()
  pools.defer(() => relayPool.destroy())
  pools.defer(() => apiPool.destroy())
  const broker = new InMemoryBroker({ topics: { 'order.events': 8 } })
  await using relay = startRelay({
    db: relayPool,
    publisher: broker.createPublisher(),
    pollIntervalMs: 200,
    leaseMs: 5_000,
  })
  const append = async () => await inTransaction(apiPool, (trx) => appendToOutbox(trx, [orderEvent('OrderPlaced')]))
  await append()
  await eventually('the first', () => broker.records('order.events').length === 1)

  // They stay silent, so that nothing but new ones can help.
  proxy.hold('')
  await expect(append()).rejects.toThrow()
  await append()
  await eventually('the second', () => broker.records('order.events').length === 2)
  await eventually('it is ready', () => relay.status().ready)
})
