/** Docker or Podman, and the images of compose.yaml. */
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import { parse } from 'yaml'
import { spoken } from './build-note.ts'
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

/** The end of a sentence on how to have a program: where containers can share the machine's network, they are a way too. */
export function orContainers(engine: Engine | null): string {
  if (process.platform !== 'linux') return ''
  return engine === null
    ? ', or install Docker or Podman'
    : `, or see to it that ${engine.program}, which is here, answers to '${engine.program} info'`
}

export interface FetchOptions {
  readonly engine: string
  /** A service of compose.yaml, whose image is meant. */
  readonly service: string
  /** Aborts: give the fetching up. */
  readonly signal: AbortSignal
  /** Takes progress, a line at a time. */
  readonly say: (line: string) => void
}

/** Milliseconds between two lines on what takes long. */
const PROGRESS_MS = 30_000

/** The image, fetched where it is not there yet. Throws {@link StackError} with what the engine says. */
export async function provideImage({ engine, service, signal, say }: FetchOptions): Promise<Image> {
  const { services } = parse(await readFile(composeFile, 'utf8')) as { services: Record<string, { image: string }> }
  const name = services[service]?.image ?? service
  const isThere = await run(engine, ['image', 'inspect', name]).then(
    () => true,
    () => false,
  )
  if (!isThere) await fetchImage({ engine, name }, { signal, say })
  return { engine, name }
}

async function fetchImage(
  { engine, name }: Image,
  { signal, say }: Pick<FetchOptions, 'signal' | 'say'>,
): Promise<void> {
  const from = performance.now()
  say(`fetching ${name}, this once`)
  const progress = setInterval(
    () => say(`fetching ${name}, for ${spoken(performance.now() - from)} so far`),
    PROGRESS_MS,
  )
  try {
    await run(engine, ['pull', '--quiet', name], { signal })
  } catch (cause) {
    const { stderr, message } = cause as Error & { stderr?: string }
    const said = (stderr || message).trim().split('\n').at(-1)
    throw new StackError(`The image ${name} could not be fetched: ${said}`, { cause })
  } finally {
    clearInterval(progress)
  }
}
