/** Our relay as a service runs it: leases in this thread, publishing in a worker thread. */
import { startRelay } from '../src/messaging/index.ts'
import type { Ground, Started } from './contenders.ts'
import type { OurWorkerData } from './our-worker.ts'

/** Resolves once every lane is leased and the broker has answered. */
export async function startOurRelay({ db, databaseUrl, brokers, topic }: Omit<Ground, 'partitions'>): Promise<Started> {
  const telemetry = { serviceName: 'outbox-relay', instance: 'relay-0' } as const
  const workerData: OurWorkerData = { databaseUrl, brokers, topic, telemetry }
  const relay = startRelay({
    db,
    threads: { entry: new URL('./our-worker.ts', import.meta.url), count: 1, workerData: () => workerData },
  })
  while (!relay.status().ready || relay.status().lanesOwned < 64) {
    await Promise.race([new Promise((resolve) => setTimeout(resolve, 20)), relay.done])
  }
  return relay
}
