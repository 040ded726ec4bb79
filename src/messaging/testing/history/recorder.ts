/**
 * How actors write history: one JSON line per word, appended at once, so that a
 * process killed in the next instant has still said what it had begun.
 */
import { closeSync, createReadStream, openSync, writeSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { v7 as uuidv7 } from 'uuid'
import type { HistoryEntry } from './evidence.ts'

/** What is told besides who, when and what became of it. */
export type Told = Omit<HistoryEntry, 'actor' | 'at' | 'kind' | 'operation' | 'name'>

/** An operation that has begun. Exactly one of the three ends it. */
export interface Invocation {
  readonly operation: string
  /** It took effect. */
  ok(told?: Told): void
  /** It certainly took no effect. */
  fail(told?: Told): void
  /** Whether it took effect is unknown. */
  info(told?: Told): void
}

export interface HistoryRecorder extends Disposable {
  /** Says that `actor` now does `name`. `operation` defaults to a fresh id. */
  invoke(actor: string, name: string, told?: Told & { readonly operation?: string }): Invocation
}

/** Appends to the file at `path`; several processes may write to one file each and be read together. */
export function recordHistory(path: string): HistoryRecorder {
  const file = openSync(path, 'a')

  function say(entry: Omit<HistoryEntry, 'at'>): void {
    writeSync(file, `${JSON.stringify({ at: performance.timeOrigin + performance.now(), ...entry })}\n`)
  }

  return {
    invoke(actor, name, { operation = uuidv7(), ...told } = {}) {
      const base = { actor, operation, name }
      say({ ...base, kind: 'invoke', ...told })
      const end = (kind: 'ok' | 'fail' | 'info') => (more?: Told) => {
        say({ ...base, kind, ...told, ...more })
      }
      return { operation, ok: end('ok'), fail: end('fail'), info: end('info') }
    },
    [Symbol.dispose]() {
      closeSync(file)
    },
  }
}

/** Reads histories back, merged by time. A last line cut short by a kill is left out. */
export async function readHistory(paths: readonly string[]): Promise<readonly HistoryEntry[]> {
  const entries: HistoryEntry[] = []
  for (const path of paths) {
    for await (const line of createInterface({
      input: createReadStream(path, 'utf8'),
      crlfDelay: Number.POSITIVE_INFINITY,
    })) {
      if (line.endsWith('}')) entries.push(JSON.parse(line) as HistoryEntry)
    }
  }
  return entries.sort((a, b) => a.at - b.at)
}
