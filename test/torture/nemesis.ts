/** Breaks one part, or two at once, mends them, waits until all is well again, and goes on until its time is over. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { HistoryRecorder } from '../../src/messaging/testing/history/recorder.ts'
import { seededRandom } from '../support/seeded-random.ts'
import { type Arena, servicesOf } from './arena.ts'
import { type Dice, type Fault, faults } from './faults.ts'
import type { Recovery } from './recoveries.ts'
import type { Waits } from './steadiness.ts'
import type { Watch } from './watch.ts'

export interface NemesisOptions {
  readonly arena: Arena
  readonly watch: Watch
  /** What it waits for before it strikes again. */
  readonly bounds: Waits
  readonly history: HistoryRecorder
  readonly seed: number
  /** Which of the faults, by name. */
  readonly names: readonly string[]
  /** Milliseconds for which it breaks things. */
  readonly forMs: number
  readonly progress: (line: string) => void
}

/** What it did. */
export interface Rampage {
  readonly recoveries: readonly Recovery[]
  /** Faults that may have made the relay send something again. */
  readonly disturbances: number
  /** Faults that could not be inflicted, and why. */
  readonly failed: readonly string[]
  /** Faults that were asked for and this machine has no means for, and why. */
  readonly missing: readonly string[]
}

/** Milliseconds after which it no longer waits for all to be well again, and breaks nothing more. */
const GIVE_UP_MS = 120_000

export async function rampage(options: NemesisOptions): Promise<Rampage> {
  const { arena, watch, bounds, history, seed, forMs, progress } = options
  const missing = new Map(options.names.map((name) => [name, faults[name]?.missing?.(arena) ?? null]))
  const names = options.names.filter((name) => missing.get(name) === null)
  if (names.length === 0) throw new Error('This machine has the means for none of the faults')
  const dice = diceOf(seed)
  const began = performance.now()
  const recoveries: Recovery[] = []
  const failed: string[] = []
  let disturbances = 0

  /** Resolves to the name of the fault when it landed. */
  async function strike(name: string, fault: Fault): Promise<readonly string[]> {
    const [low, high] = fault.lastsMs
    const lastsMs = dice.between(low, high)
    const invocation = history.invoke('nemesis', name, { detail: { lastsMs } })
    if (fault.doubles) disturbances += 1
    try {
      const mend = await fault.inflict(arena, dice)
      await sleep(lastsMs)
      await mend()
      invocation.ok()
      return [name]
    } catch (error) {
      invocation.info({ detail: { error: String(error) } })
      failed.push(`${name}: ${error}`)
      progress(`${name} failed: ${error}`)
      return []
    }
  }

  async function recover(landed: readonly string[], struckAt: number): Promise<Recovery> {
    const from = performance.now()
    const [steady, readyMs] = await Promise.all([
      watch.steady({ from, bounds, withinMs: GIVE_UP_MS }),
      untilReady(arena, from),
    ])
    const looks = watch.looks.filter(({ at }) => at >= struckAt && at <= (steady?.at ?? Number.POSITIVE_INFINITY))
    return {
      faults: landed,
      endedMs: Math.round(from - began),
      steadyMs: steady && Math.round(steady.at - from),
      last: steady?.last ?? [],
      readyMs,
      backlog: Math.max(0, ...looks.map(({ pending }) => pending)),
    }
  }

  while (performance.now() < began + forMs) {
    await sleep(dice.between(0, 2_000))
    const chosen = chooseFaults(names, dice)
    const title = chosen.map(([name]) => name).join(' + ')
    progress(title)
    const struckAt = performance.now()
    const landed = (await Promise.all(chosen.map(([name, fault]) => strike(name, fault)))).flat()
    const recovery = await recover(landed, struckAt)
    if (landed.length > 0) recoveries.push(recovery)
    progress(`${title}: ${say(recovery)}`)
    if (recovery.steadyMs === null || recovery.readyMs === null) break
  }
  const without = [...missing].flatMap(([name, why]) => (why === null ? [] : [`${name}: ${why}`]))
  return { recoveries, disturbances, failed, missing: without }
}

function say({ steadyMs, readyMs, backlog }: Recovery): string {
  if (steadyMs === null || readyMs === null) return 'NOT RECOVERED'
  const [steady, ready] = [steadyMs, readyMs].map((ms) => (ms / 1_000).toFixed(1))
  return `steady after ${steady} s, ready after ${ready} s, backlog up to ${backlog}`
}

/** Milliseconds until every process is ready; `null` when it takes too long. */
async function untilReady(arena: Arena, from: number): Promise<number | null> {
  const ready = servicesOf(arena).map((service) => service.until(true, { withinMs: GIVE_UP_MS }))
  return await Promise.all(ready).then(
    () => Math.round(performance.now() - from),
    () => null,
  )
}

/** One fault, or two of different parts. */
function chooseFaults(names: readonly string[], dice: Dice): [string, Fault][] {
  const all = names.flatMap((name): [string, Fault][] => {
    const fault = faults[name]
    return fault ? [[name, fault]] : []
  })
  const first = dice.pick(all)
  const others = all.filter(([, { part }]) => part !== first[1].part)
  return others.length > 0 && dice.chance(0.3) ? [first, dice.pick(others)] : [first]
}

function diceOf(seed: number): Dice {
  const random = seededRandom(seed)
  const between = (low: number, high: number) => low + Math.floor(random() * (high - low + 1))
  return {
    between,
    chance: (probability) => random() < probability,
    pick(items) {
      const item = items[between(0, items.length - 1)]
      if (item === undefined) throw new RangeError('There is nothing to pick from')
      return item
    },
  }
}
