/**
 * Our relay in a process of its own: its CPU is the relay's and nobody else's,
 * neither that of filling the outbox, of watching it and of judging the topic,
 * nor of their garbage. Started with the service's preload it has the telemetry
 * of a service.
 */
import { once } from 'node:events'
import knex from 'knex'
import { publishCommitted } from '../src/messaging/outbox/committed.ts'
import { LANE_COUNT } from '../src/messaging/outbox/lane.ts'
import { collectMetrics, shutdownTelemetry } from '../src/service/telemetry-handle.ts'
import type { Ground } from './contenders.ts'
import { flushBoth } from './flush-spans.ts'
import { startOurRelay } from './our-relay.ts'

/** The first message to it. It answers once it looks for events. */
export type RelayProcessData = Pick<Ground, 'databaseUrl' | 'brokers' | 'topic'>

/** What it can be told afterwards: that events were committed; to export what it has; to measure itself; to end. All but the first it answers with microseconds of its CPU. */
export type RelayProcessCommand = 'wake' | 'flush' | 'measure' | 'stop'

/** Milliseconds between two scrapes, which are a part of what metrics cost: as `observability/prometheus.yaml` has it. */
const SCRAPE_MS = 15_000

const [data] = (await once(process, 'message')) as [RelayProcessData]
const db = knex({ client: 'pg', connection: data.databaseUrl, pool: { min: 1, max: 4 } })
const relay = await startOurRelay({ ...data, db })
const scraping = setInterval(() => void collectMetrics(), SCRAPE_MS)

const commands: Readonly<Record<RelayProcessCommand, () => void | Promise<void>>> = {
  wake: () => publishCommitted(Array.from({ length: LANE_COUNT }, (_, lane) => lane)),
  async flush() {
    await flushBoth()
    answer()
  },
  measure: () => answer(),
  async stop() {
    clearInterval(scraping)
    await relay.stop()
    await db.destroy()
    await shutdownTelemetry()
    answer()
    process.disconnect()
  },
}
process.on('message', (command: RelayProcessCommand) => void commands[command]())
answer()

function answer(): void {
  const { user, system } = process.cpuUsage()
  process.send?.(user + system)
}
