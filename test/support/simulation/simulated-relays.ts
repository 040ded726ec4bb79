/** Relay processes of a simulation: the real relay and its real workers, over memory, in virtual time. */

import { PublishError } from '../../../src/messaging/errors.ts'
import { silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import { defaultTopicFor } from '../../../src/messaging/outbox/topic-rule.ts'
import { resolveRelaySettings } from '../../../src/messaging/relay/options.ts'
import { type Relay, superviseRelay } from '../../../src/messaging/relay/relay.ts'
import { spawnInline } from '../../../src/messaging/relay/spawn.ts'
import { runWorker } from '../../../src/messaging/relay/worker.ts'
import type { InMemoryBroker } from '../../../src/messaging/testing/in-memory-broker.ts'
import type { InMemoryOutbox } from '../../../src/messaging/testing/in-memory-outbox.ts'
import type { Publisher, RecordBatch } from '../../../src/messaging/transport.ts'
import { type CallFault, SimulatedProcess } from './simulated-process.ts'
import type { VirtualTime } from './virtual-time.ts'

export const topicFor = defaultTopicFor('')

/** Milliseconds that a request to the broker is under way at most, when nothing is slow. */
const LATENCY_MS = 40

export interface SimulatedRelay {
  readonly process: SimulatedProcess
  /** The uuids of its workers so far. */
  readonly owners: ReadonlySet<string>
  readonly relay: Relay
  /** Tells it that lanes have something new, as a notification would. */
  wake(lanes: readonly number[]): void
}

export interface Surroundings {
  readonly time: VirtualTime
  readonly outbox: InMemoryOutbox
  readonly broker: InMemoryBroker
  readonly partitionCount: number
  /** Small ones fill the queues: what waits behind a batch that fails is what can go wrong. */
  readonly batchSize: number
  /** Few: keys are parked within a short run. */
  readonly maxAttempts: number
  /** Milliseconds for which a publisher repeats a batch; 0 tries once, so that every failure reaches the relay. */
  readonly deliveryTimeoutMs: number
  /** Milliseconds that a way to the database or back takes at most. */
  readonly databaseLatencyMs: number
  /** What becomes of the next call to the database. */
  readonly databaseFault: () => CallFault
  /** A send ended with an unknown outcome: it may be on the topic twice in the end. */
  readonly onUnknownOutcome: () => void
  /** Something happened that may never happen. */
  readonly onDefect: (problem: string) => void
  /** Hears of each batch as a relay hands it over. */
  readonly onSend?: (batch: RecordBatch, relay: SimulatedRelay) => void
  /** Hears of each batch that was acknowledged, as the relay does. */
  readonly onAccepted?: (batch: RecordBatch) => void
}

let owners = 0

/** Names start anew, so that a seed gives the same names. */
export function resetOwners(): void {
  owners = 0
}

export function startSimulatedRelay(around: Surroundings): SimulatedRelay {
  const { time, outbox, broker, partitionCount, batchSize, maxAttempts } = around
  const { deliveryTimeoutMs, databaseLatencyMs, databaseFault } = around
  const settings = { maxAttempts, batchSize }
  const process = new SimulatedProcess(time, { faultOf: databaseFault, latencyMs: databaseLatencyMs })
  const { clock } = process
  const store = process.over(outbox)
  const ownersOfThis = new Set<string>()
  let onWake: (lanes: readonly number[]) => void = () => {}
  const onSend = (batch: RecordBatch) => around.onSend?.(batch, simulated)

  const relay = superviseRelay({
    directory: store,
    listener: (listener) => {
      onWake = listener
      return { listening: true, run: (signal) => clock.pause(Number.MAX_SAFE_INTEGER, signal) }
    },
    spawn: () =>
      spawnInline((line) =>
        runWorker({
          line,
          source: store,
          registry: store,
          publisher: publisherOf(process, broker.createPublisher({ deliveryTimeoutMs }), { ...around, onSend }),
          topicFor,
          createTopics: { partitionCount, replicationFactor: null },
          settings,
          logger: silentLogger,
          clock,
        }),
      ),
    count: 1,
    createOwner: () => {
      owners += 1
      const owner = `00000000-0000-7000-8000-${String(owners).padStart(12, '0')}`
      ownersOfThis.add(owner)
      return owner
    },
    settings: resolveRelaySettings(settings),
    logger: silentLogger,
    clock,
  })
  const simulated: SimulatedRelay = {
    process,
    owners: ownersOfThis,
    relay,
    wake(lanes) {
      if (process.running) onWake(lanes)
    },
  }
  return simulated
}

interface PublisherSurroundings extends Pick<Surroundings, 'time' | 'onUnknownOutcome' | 'onDefect' | 'onAccepted'> {
  readonly onSend: (batch: RecordBatch) => void
}

function publisherOf(process: SimulatedProcess, publisher: Publisher, around: PublisherSurroundings): Publisher {
  const { time } = around
  const arrive: Publisher['publish'] = async (batch, options) => {
    await time.pause(time.between(0, LATENCY_MS))
    return await publisher.publish(batch, options)
  }
  return {
    deliveryTimeoutMs: publisher.deliveryTimeoutMs,
    async publish(batch, options) {
      around.onSend(batch)
      const sent = arrive(batch, options).catch((error: unknown) => {
        if (!(error instanceof PublishError)) around.onDefect(`a send failed in an unforeseen way: ${error}`)
        else if (error.outcome === 'unknown') around.onUnknownOutcome()
        throw error
      })
      const receipt = await process.pass(() => sent)
      around.onAccepted?.(batch)
      return receipt
    },
    findEvent: (search, options) =>
      process.pass(async () => {
        await time.pause(time.between(0, LATENCY_MS))
        return await publisher.findEvent(search, options)
      }),
    describeTopic: (topic) => process.pass(() => publisher.describeTopic(topic)),
    createTopic: (topic, spec) => process.pass(() => publisher.createTopic(topic, spec)),
    ping: () => process.pass(() => publisher.ping()),
    close: () => process.pass(() => publisher.close()),
  }
}
