/** Jaeger's program: a release where one is installed, or built once from its Go module and kept for all checkouts. */
import { execFile } from 'node:child_process'
import { mkdir, readFile, rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { cacheDir } from './config.ts'
import { exists } from './exists.ts'
import { startGuarded } from './guarded-process.ts'
import { StackError } from './stack-error.ts'

const run = promisify(execFile)
const moduleDir = fileURLToPath(new URL('../../stack/jaeger', import.meta.url))

/** A Jaeger on the path: its pages are complete, which those of a build from the module are not. */
export const RELEASE = 'jaeger'

/** The path of a Jaeger that is there now, or null. Builds nothing. */
export async function jaegerBinary(): Promise<string | null> {
  const built = await builtPath()
  if (await works(RELEASE, ['version'])) return RELEASE
  return (await exists(built)) ? built : null
}

/** Whether {@link buildJaeger} could work here. */
export async function canBuildJaeger(): Promise<boolean> {
  return await works('go', ['version'])
}

export interface BuildOptions {
  /** Aborts: give the build up. */
  readonly signal: AbortSignal
  /** Called every `progressMs` with how far it is. */
  readonly onProgress?: (progress: BuildProgress) => void
  /** Milliseconds. @defaultValue 30_000 */
  readonly progressMs?: number
}

export interface BuildProgress {
  readonly elapsedMs: number
  /** Packages that are compiled so far. */
  readonly packageCount: number
  /** What the compiler says. */
  readonly logFile: string
}

/**
 * Builds Jaeger at low priority, about three minutes of two cores the first
 * time, and resolves to its path. An interrupted build goes on where it was.
 * Throws {@link StackError} with the compiler's last line.
 */
export async function buildJaeger({
  signal,
  onProgress = () => {},
  progressMs = 30_000,
}: BuildOptions): Promise<string> {
  const built = await builtPath()
  const partial = `${built}.${process.pid}`
  const log = `${partial}.log`
  await mkdir(dirname(built), { recursive: true })
  const go = startGuarded({
    command: ['nice', '-n', '15', 'go', 'build', '-v', '-o', partial, 'github.com/jaegertracing/jaeger/cmd/jaeger'],
    cwd: moduleDir,
    logFile: log,
    stopSignal: 'SIGTERM',
    orphanGraceSeconds: 2,
  })
  const from = performance.now()
  const progress = setInterval(() => {
    const elapsedMs = performance.now() - from
    readFile(log, 'utf8').then(
      (text) => onProgress({ elapsedMs, packageCount: countPackages(text), logFile: log }),
      () => {},
    )
  }, progressMs)
  // With the compilers that it has started: they would go on by themselves for a while.
  const give = () => go.killGroup('SIGTERM')
  signal.addEventListener('abort', give)
  if (signal.aborted) give()
  try {
    const how = await go.ended
    if (how !== 'exit code 0') {
      const reason = (await readFile(log, 'utf8')).trim().split('\n').at(-1)
      throw new StackError(`Jaeger could not be built (${how}): ${reason}`)
    }
    await rename(partial, built)
    return built
  } finally {
    clearInterval(progress)
    signal.removeEventListener('abort', give)
    await rm(partial, { force: true })
    await rm(log, { force: true })
  }
}

/** The compiler names each package as it begins with it, and what it fetches after `go:`. */
function countPackages(log: string): number {
  return log.split('\n').filter((line) => /^[\w.-]+(\/\S+)*$/.test(line)).length
}

async function builtPath(): Promise<string> {
  const text = await readFile(join(moduleDir, 'go.mod'), 'utf8')
  const version = /github\.com\/jaegertracing\/jaeger v([\d.]+)/.exec(text)?.[1]
  return join(cacheDir(), `jaeger-${version}`, 'jaeger')
}

async function works(program: string, args: string[]): Promise<boolean> {
  return await run(program, args).then(
    () => true,
    () => false,
  )
}
