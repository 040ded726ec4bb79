/** One process of the service, started as in production, that a test kills and starts again on the same ports. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { freePorts } from '../../../src/local/free-ports.ts'
import { type GuardedProcess, startGuarded } from '../../../src/local/guarded-process.ts'

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url))

export interface ServiceOptions {
  /** For its log file. */
  readonly name: string
  readonly roles: readonly ('api' | 'relay' | 'consumer')[]
  readonly env: Readonly<Record<string, string>>
  /** Where its log goes. */
  readonly dir: string
}

/** What a readiness page says. */
export interface Readiness {
  readonly ready: boolean
  readonly problems: readonly string[]
}

export interface Service extends AsyncDisposable {
  readonly name: string
  /** `http://127.0.0.1:port`, of the API and of the admin port. */
  readonly url: string
  readonly adminUrl: string
  readonly pid: number | null
  start(): void
  /** Sends a signal; after one that ends it, resolves to how it ended: `exit code 0`. */
  kill(signal: NodeJS.Signals): Promise<string>
  /** One look at `/readyz`, or at the page of a role; not ready while nothing answers. */
  readiness(role?: string): Promise<Readiness>
  /** Resolves to the milliseconds until `/readyz` was as wanted; rejects after `withinMs` with what it said last. */
  until(ready: boolean, options?: { readonly role?: string; readonly withinMs?: number }): Promise<number>
  /** Its standard output and error, all its lives together. */
  readonly logFile: string
  /** What it has logged, all its lives together. */
  log(): Promise<readonly Readonly<Record<string, unknown>>[]>
}

/** Milliseconds between two looks, and for the answer to one: a process may stand still on purpose, or be busy. */
const LOOK_MS = 50
const READINESS_MS = 10_000

/** Starts a process of the service; `until(true)` waits for it. */
export async function startService({ name, roles, env, dir }: ServiceOptions): Promise<Service> {
  const [port = 0, adminPort = 0] = await freePorts(2)
  const logFile = join(dir, `${name}.log`)
  const adminUrl = `http://127.0.0.1:${adminPort}`
  let running: GuardedProcess | null = null

  function start(): void {
    running = startGuarded({
      command: [
        process.execPath,
        '--import',
        path('../../../src/service/telemetry.ts'),
        path('../../../src/service/main.ts'),
      ],
      logFile,
      stopSignal: 'SIGKILL',
      orphanGraceSeconds: 1,
      env: {
        LOG_LEVEL: 'info',
        NODE_COMPILE_CACHE: path('../../../.data/compile-cache'),
        ...env,
        ROLES: roles.join(),
        PORT: String(port),
        ADMIN_PORT: String(adminPort),
      },
    })
    const mine = running
    void mine.ended.then(() => {
      if (running === mine) running = null
    })
  }

  async function kill(signal: NodeJS.Signals): Promise<string> {
    const mine = running
    if (mine === null) return 'not running'
    mine.kill(signal)
    if (signal === 'SIGSTOP' || signal === 'SIGCONT') return 'running'
    return await mine.ended
  }

  async function readiness(role?: string): Promise<Readiness> {
    const page = role === undefined ? '/readyz' : `/readyz/${role}`
    try {
      const response = await fetch(`${adminUrl}${page}`, { signal: AbortSignal.timeout(READINESS_MS) })
      const { problems } = (await response.json()) as Readiness
      return { ready: response.status === 200, problems }
    } catch (error) {
      return { ready: false, problems: [`No answer: ${error}`] }
    }
  }

  start()
  return {
    name,
    url: `http://127.0.0.1:${port}`,
    adminUrl,
    logFile,
    get pid() {
      return running?.pid ?? null
    },
    start,
    kill,
    readiness,
    async until(wanted, { role, withinMs = 120_000 } = {}) {
      const from = performance.now()
      for (;;) {
        const { ready, problems } = await readiness(role)
        const tookMs = performance.now() - from
        if (ready === wanted) return tookMs
        if (tookMs > withinMs) {
          throw new Error(
            `${name} was not ${wanted ? 'ready' : 'unready'} within ${withinMs} ms: ${problems.join('; ')}`,
          )
        }
        await sleep(LOOK_MS)
      }
    },
    async log() {
      const text = await readFile(logFile, 'utf8')
      return text.split('\n').flatMap((line) => (line.startsWith('{') && line.endsWith('}') ? [JSON.parse(line)] : []))
    },
    async [Symbol.asyncDispose]() {
      await kill('SIGCONT')
      await kill('SIGKILL')
    },
  }
}
