/** What the metrics say of relay workers that die, stand still, or never come up. */
import { expect, test } from '@jest/globals'
import { silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import { Crew } from '../../../src/messaging/relay/crew.ts'
import type { FromWorker } from '../../../src/messaging/relay/protocol.ts'
import { measureRelay } from '../../../src/messaging/relay/relay-status.ts'
import type { WorkerHandle } from '../../../src/messaging/relay/spawn.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { idleReport } from '../../support/relay/idle-report.ts'
import { readMetrics } from '../../support/telemetry/metric-reader.ts'

const points = readMetrics()

/** A worker that says what the test lets it say, and ends when that says so. */
class ScriptedWorker {
  readonly #listeners: ((message: FromWorker) => void)[] = []
  readonly #ended = Promise.withResolvers<Error | null>()
  readonly handle: WorkerHandle = {
    line: { post: () => {}, listen: (listener) => this.#listeners.push(listener), close: () => {} },
    ended: this.#ended.promise,
    terminate: async () => this.end(),
  }

  say(message: FromWorker): void {
    for (const listener of this.#listeners) listener(message)
  }

  /** Comes up: what a real one says at its start, in one go. */
  comeUp(): void {
    this.say({ kind: 'ready' })
    this.beat()
  }

  beat(): void {
    this.say({ kind: 'heartbeat', report: idleReport })
  }

  end(): void {
    this.#ended.resolve(null)
  }
}

function createCrew() {
  const draining = new AbortController()
  const workers: ScriptedWorker[] = []
  // Seconds pass at each look: a mark that is set again is another one.
  let now = 0
  const crew = new Crew({
    count: 1,
    spawn: () => {
      const worker = new ScriptedWorker()
      workers.push(worker)
      return worker.handle
    },
    createOwner: () => `owner-${workers.length}`,
    pollIntervalMs: 1_000,
    clock: { now: () => now, pause: async () => {}, random: () => 0.5 },
    logger: silentLogger,
    draining: draining.signal,
    onChange: () => {},
    onEnded: async () => {},
  })
  return {
    workers,
    /** One round of the relay's own loop; resolves to when, as it says, its worker last went round. */
    async round(): Promise<number | undefined> {
      now += 1_000
      await new Promise((resolve) => setTimeout(resolve, 2))
      crew.tick()
      measureRelay(crew.members, true)
      const [point] = await points('outbox.relay.last_poll.timestamp')
      return Number(point?.value)
    },
    /** The end of the grace period: what is alive then is ended. */
    async terminate() {
      draining.abort()
      await crew.terminate()
    },
    async [Symbol.asyncDispose]() {
      draining.abort()
      for (const worker of workers) worker.end()
      await crew.drain(AbortSignal.abort())
    },
  }
}

test('a worker goes round from its first sign of life on, and no more once it is silent', async () => {
  await using crew = createCrew()
  const [worker] = crew.workers

  worker?.comeUp()
  const first = await crew.round()
  worker?.beat()
  const second = await crew.round()
  const silent = [await crew.round(), await crew.round()]

  expect(first).toBeGreaterThan(0)
  expect(second).toBeGreaterThan(first ?? 0)
  expect(silent).toEqual([second, second])
})

test('a successor that never comes up, or stands still as soon as it is up, has not gone round', async () => {
  await using crew = createCrew()
  crew.workers[0]?.comeUp()
  const alive = await crew.round()

  crew.workers[0]?.end()
  await eventually('a second worker', () => crew.workers.length === 2)
  expect(await crew.round()).toBe(alive)
  crew.workers[1]?.comeUp()
  expect(await crew.round()).toBe(alive)
  crew.workers[1]?.end()
  await eventually('a third worker', () => crew.workers.length === 3)
  crew.workers[2]?.comeUp()
  expect(await crew.round()).toBe(alive)
})

test('a successor that goes on and on goes round again', async () => {
  await using crew = createCrew()
  crew.workers[0]?.comeUp()
  const alive = await crew.round()
  crew.workers[0]?.end()
  await eventually('a second worker', () => crew.workers.length === 2)

  crew.workers[1]?.comeUp()
  const marks: (number | undefined)[] = []
  for (let beats = 2; beats <= 10; beats += 1) {
    crew.workers[1]?.beat()
    marks.push(await crew.round())
  }

  expect(marks.slice(0, -1)).toEqual(marks.slice(0, -1).map(() => alive))
  expect(marks.at(-1)).toBeGreaterThan(alive ?? 0)
})

test('each worker that died is counted as a restart, and each that was ended by force as a termination', async () => {
  const [restarts, terminations] = [await counted('restarts'), await counted('terminations')]
  {
    await using crew = createCrew()
    crew.workers[0]?.comeUp()
    crew.workers[0]?.end()
    await eventually('a second worker', () => crew.workers.length === 2)
    crew.workers[1]?.comeUp()
    // Beyond the silence after which a worker is replaced.
    while (crew.workers.length === 2) await crew.round()
    crew.workers[2]?.comeUp()
    await crew.terminate()
  }

  expect([await counted('restarts'), await counted('terminations')]).toEqual([restarts + 2, terminations + 2])
})

async function counted(what: 'restarts' | 'terminations'): Promise<number> {
  const [point] = await points(`outbox.relay.thread.${what}`)
  return Number(point?.value ?? 0)
}
