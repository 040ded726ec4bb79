import { expect, test } from '@jest/globals'
import pg from 'pg'
import { askCluster } from '../../src/local/kafka-metadata.ts'
import { testBrokers } from '../support/kafka.ts'
import { testPostgresUrl } from '../support/postgres.ts'

test('every test file finds a Postgres and a Kafka of its run', async () => {
  const client = new pg.Client({ connectionString: testPostgresUrl() })
  await client.connect()
  const { rows } = await client.query<{ version: string }>("select current_setting('server_version') as version")
  await client.end()
  expect(rows[0]?.version).toMatch(/^18\./)

  const [broker = ''] = testBrokers()
  expect((await askCluster(Number(broker.split(':')[1])))?.brokerIds).toEqual([1])
})
