/**
 * A server's program as it is had here: installed, or in an image that a
 * container engine runs. Either way it is a child of this process and speaks
 * on 127.0.0.1.
 */
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { OwnedServer } from './owned-server.ts'

export interface Image {
  /** The program that runs it: `docker`. */
  readonly engine: string
  /** With its version. */
  readonly name: string
}

/** The path of an installed program, or its image. */
export type Runnable = string | Image

export interface CommandOptions {
  readonly args: readonly string[]
  readonly env: Readonly<Record<string, string>>
  /** The files and folders of ours that it reads. */
  readonly reads: readonly string[]
}

/**
 * What starts it. A container shares the machine's network, since the service's
 * admin port listens on the loopback alone, and has our files where they are
 * here. The engine's command stays its parent, hands signals on, and leaves
 * nothing behind.
 */
export function commandOf(runnable: Runnable, { args, env, reads }: CommandOptions): [string, ...string[]] {
  if (typeof runnable === 'string') return [runnable, ...args]
  const mounts = reads.flatMap((path) => ['-v', `${path}:${path}:ro`])
  const variables = Object.entries(env).flatMap(([name, value]) => ['-e', `${name}=${value}`])
  return [runnable.engine, 'run', '--rm', '--network', 'host', ...mounts, ...variables, runnable.name, ...args]
}

export interface RunnableOptions extends CommandOptions {
  /** For messages, and for its log: `Prometheus`. */
  readonly name: string
  readonly runnable: Runnable
  /** Folder of its log and pid file. */
  readonly dir: string
  /** Answers with success once it can be used. */
  readonly healthUrl: string
}

/** Starts it; resolves once it can be used. Throws {@link StackError} with the end of its log. */
export async function startRunnable({ name, runnable, dir, healthUrl, ...how }: RunnableOptions): Promise<OwnedServer> {
  await mkdir(dir, { recursive: true })
  const file = join(dir, name.toLowerCase())
  const server = new OwnedServer({
    name,
    command: commandOf(runnable, how),
    env: how.env,
    logFile: `${file}.log`,
    pidFile: `${file}.pid`,
    stopSignal: 'SIGTERM',
    graceSeconds: 10,
    answers: () => answersWell(healthUrl),
    startTimeoutMs: 60_000,
  })
  await server.start()
  return server
}

/** Whether `url` answers, and with success. */
export async function answersWell(url: string): Promise<boolean> {
  return await fetch(url, { signal: AbortSignal.timeout(2_000) }).then(
    ({ ok }) => ok,
    () => false,
  )
}
