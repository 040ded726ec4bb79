/**
 * `npm run tail -- order.events`: the records of a topic as they come, a line
 * each, until Ctrl-C. Reads in a group of its own and commits nothing.
 */
import { randomUUID } from 'node:crypto'
import { Command } from 'commander'
import { type IHeaders, Kafka, logLevel } from 'kafkajs'
import { lastStart } from './last-start.ts'

const { topic, brokers, fromBeginning } = options()

const kafka = new Kafka({ clientId: 'tail', brokers: brokers.split(','), logLevel: logLevel.NOTHING })
const consumer = kafka.consumer({ groupId: `tail-${randomUUID()}`, allowAutoTopicCreation: false })

for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void consumer.disconnect())
// Whoever reads only the first lines, as `head` does, closes the pipe.
process.stdout.on('error', () => process.exit(0))

try {
  await consumer.connect()
  // Apart from what a pipe reads.
  console.error('partition:offset  event_type  key  event_id  payload')
  await consumer.subscribe({ topic, fromBeginning })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message: { offset, key, value, headers = {} } }) => {
      const type = header(headers, 'event_type')
      console.log(`${partition}:${offset}  ${type}  ${key}  ${header(headers, 'event_id')}  ${value ?? '(tombstone)'}`)
    },
  })
} catch (error) {
  console.error(`${topic} cannot be read at ${brokers}: ${error instanceof Error ? error.message : error}`)
  await consumer.disconnect().catch(() => {})
  process.exitCode = 1
}

function options(): { topic: string; brokers: string; fromBeginning: boolean } {
  const command = new Command('npm run tail --')
    .description('Prints the records of a topic as they come: partition:offset, type, key, event_id and payload.')
    .argument('<topic>', 'order.events, say')
    .option('--from-beginning', 'all that the topic still has, and then what comes', false)
    .option('--brokers <list>', 'host:port, …', process.env.KAFKA_BROKERS || lastStart().KAFKA_BROKERS)
    .showHelpAfterError()
    .parse()
  const { brokers, fromBeginning } = command.opts<{ brokers?: string; fromBeginning: boolean }>()
  if (!brokers) return command.error('No Kafka: npm start brings one, --brokers names another.')
  return { topic: command.args[0] ?? '', brokers, fromBeginning }
}

function header(headers: IHeaders, name: string): string {
  return String(headers[name] ?? '-')
}
