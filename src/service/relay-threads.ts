/** The relay of this process: which threads it has and what it tells them. */
import { extname } from 'node:path'
import type { Knex } from 'knex'
import { type Logger, type Relay, startRelay } from '../messaging/index.ts'
import type { ServiceConfig } from './config.ts'
import type { TelemetryIdentity } from './telemetry-identity.ts'

/** Milliseconds that the relay gives to what is in hand when it stops. */
export const RELAY_GRACE_MS = 4_000

/** What a relay and its threads have to agree on. */
export const relaySettings = { graceMs: RELAY_GRACE_MS } as const

/** `workerData` of a relay thread. */
export interface RelayThreadData {
  readonly telemetry: TelemetryIdentity
}

/** Starts the relay with its threads. */
export function startRelayThreads(db: Knex, { relay }: Pick<ServiceConfig, 'relay'>, logger: Logger): Relay {
  return startRelay({
    db,
    threads: {
      // `tsc` rewrites imports and not URLs: the ending is this file's own.
      entry: new URL(`./relay-worker${extname(import.meta.filename)}`, import.meta.url),
      count: relay.threads,
      workerData: (index): RelayThreadData => ({
        telemetry: { serviceName: 'outbox-relay', instance: `relay-${index}` },
      }),
    },
    ...relaySettings,
    logger,
  })
}
