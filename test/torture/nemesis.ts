/** Breaks one part, or two at once, mends them, waits until all is well again, and goes on until its time is over. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { RecoveryEvidence } from '../../src/messaging/testing/history/evidence.ts'
import type { HistoryRecorder } from '../../src/messaging/testing/history/recorder.ts'
import { seededRandom } from '../support/seeded-random.ts'
import { type Arena, servicesOf } from './arena.ts'
import { type Dice, type Fault, faults } from './faults.ts'

export interface NemesisOptions {
  readonly arena: Arena
  readonly history: HistoryRecorder
  readonly seed: number
  /** Which of the faults, by name. */
  readonly names: readonly string[]
  /** Milliseconds since the process began, at which it stops breaking things. */
  readonly until: number
  readonly progress: (line: string) => void
}

/** What it did. */
export interface Rampage {
  readonly recoveries: readonly RecoveryEvidence[]
  /** Faults that may have made the relay send something again. */
  readonly disturbances: number
  /** Faults that could not be inflicted, and why. */
  readonly failed: readonly string[]
}

/** Milliseconds within which everything is well again after a fault has been mended. */
export const RECOVERY_MS = 60_000

export async function rampage(options: NemesisOptions): Promise<Rampage> {
  const { arena, history, seed, names, until, progress } = options
  const dice = diceOf(seed)
  const recoveries: RecoveryEvidence[] = []
  const failed: string[] = []
  let disturbances = 0

  async function strike(name: string, fault: Fault): Promise<void> {
    const [low, high] = fault.lastsMs
    const lastsMs = dice.between(low, high)
    const invocation = history.invoke('nemesis', name, { detail: { lastsMs } })
    if (fault.doubles) disturbances += 1
    try {
      const mend = await fault.inflict(arena, dice)
      await sleep(lastsMs)
      await mend()
      invocation.ok()
    } catch (error) {
      invocation.info({ detail: { error: String(error) } })
      failed.push(`${name}: ${error}`)
      progress(`${name} failed: ${error}`)
    }
  }

  while (performance.now() < until) {
    await sleep(dice.between(500, 4_000))
    const chosen = chooseFaults(names, dice)
    const title = chosen.map(([name]) => name).join(' + ')
    progress(title)
    await Promise.all(chosen.map(([name, fault]) => strike(name, fault)))
    const tookMs = await recovered(arena)
    recoveries.push({ name: title, tookMs, withinMs: RECOVERY_MS })
    progress(
      tookMs === null ? `${title}: NOT RECOVERED` : `${title}: well again after ${(tookMs / 1_000).toFixed(1)} s`,
    )
    if (tookMs === null) break
  }
  return { recoveries, disturbances, failed }
}

/** Milliseconds until every process is ready; `null` when it takes too long. */
async function recovered(arena: Arena): Promise<number | null> {
  const from = performance.now()
  const ready = servicesOf(arena).map((service) => service.until(true, { withinMs: RECOVERY_MS }))
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
