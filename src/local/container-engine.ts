/** Docker or Podman, and the images of compose.yaml. */
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import { parse } from 'yaml'
import { onPath } from './on-path.ts'
import type { Image } from './runnable.ts'
import { StackError } from './stack-error.ts'

const run = promisify(execFile)
const composeFile = new URL('../../compose.yaml', import.meta.url)

export interface Engine {
  /** `docker` or `podman`. */
  readonly program: string
  /** Whether it can be used: the command alone may be there, without what runs containers. */
  readonly answers: boolean
}

/** Milliseconds for an answer. */
const ANSWER_MS = 10_000

/** The engine of this machine, one that answers first; `null` where none is, or where its containers cannot share the machine's network. */
export async function containerEngine(): Promise<Engine | null> {
  if (process.platform !== 'linux') return null
  const engines = await Promise.all(
    ['docker', 'podman'].filter(onPath).map(async (program) => ({ program, answers: await answers(program) })),
  )
  return engines.find((engine) => engine.answers) ?? engines[0] ?? null
}

async function answers(engine: string): Promise<boolean> {
  return await run(engine, ['info'], { timeout: ANSWER_MS }).then(
    () => true,
    () => false,
  )
}

export interface FetchOptions {
  readonly engine: string
  /** A service of compose.yaml, whose image is meant. */
  readonly service: string
  /** Aborts: give the fetching up. */
  readonly signal: AbortSignal
  /** Called before an image is fetched that is not there yet. */
  readonly onFetch: (image: string) => void
}

/** The image, fetched where it is not there yet. Throws {@link StackError} with what the engine says. */
export async function provideImage({ engine, service, signal, onFetch }: FetchOptions): Promise<Image> {
  const { services } = parse(await readFile(composeFile, 'utf8')) as { services: Record<string, { image: string }> }
  const name = services[service]?.image ?? service
  const isThere = await run(engine, ['image', 'inspect', name]).then(
    () => true,
    () => false,
  )
  if (!isThere) {
    onFetch(name)
    await run(engine, ['pull', '--quiet', name], { signal }).catch((error: Error & { stderr?: string }) => {
      const said = (error.stderr || error.message).trim().split('\n').at(-1)
      throw new StackError(`The image ${name} could not be fetched: ${said}`, { cause: error })
    })
  }
  return { engine, name }
}
