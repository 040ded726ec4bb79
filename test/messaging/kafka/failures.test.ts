/** How the driver names what kafkajs rejects with. */
import { createRequire } from 'node:module'
import { expect, test } from '@jest/globals'
import { understand } from '../../../src/messaging/kafka/failures.ts'

test('a broker that kafkajs has not connected to again is named, though its error has no class of its own', async () => {
  const Broker = createRequire(import.meta.url)('kafkajs/src/broker')
  const broker = new Broker({ connectionPool: {}, logger: { namespace: () => ({}) } })

  const failure: unknown = await broker.produce({ topicData: [] }).catch((error: unknown) => error)

  expect(understand(failure)).toMatchObject({ kind: 'outage', reason: 'NOT_CONNECTED', definite: false, retire: true })
  const wrapped = new Error('Retries exceeded', { cause: failure })
  expect(understand(wrapped)).toMatchObject({ reason: 'NOT_CONNECTED' })
})
