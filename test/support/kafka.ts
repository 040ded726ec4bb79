/** The Kafka node that global-setup started for this run of the tests. */
import { randomBytes } from 'node:crypto'

/** `host:port` of the one-node cluster. */
export function testBrokers(): readonly string[] {
  const brokers = process.env.TEST_KAFKA_BROKERS
  if (!brokers) throw new Error('TEST_KAFKA_BROKERS is not set: run tests with npm run jest')
  return brokers.split(',')
}

/** A topic name that no other test has, also in another run. The topic is not created. */
export function uniqueTopic(name: string): string {
  return `${name}-${randomBytes(5).toString('hex')}`
}
