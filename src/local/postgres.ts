/**
 * An embedded Postgres 18: real, on 127.0.0.1, with its data where it is told.
 *
 * It is used only once the server that answers has named the data folder that
 * it was given, so a foreign server on the same port is never touched.
 */
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chown, mkdir, readFile, realpath, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import type { ServerCertificate } from './certificates.ts'
import { exists } from './exists.ts'
import { freePorts } from './free-ports.ts'
import { commandLine, endLeftover } from './leftover.ts'
import { OwnedServer } from './owned-server.ts'
import { type PostgresBinaries, postgresBinaries } from './postgres-binaries.ts'
import { reachableDir } from './reachable-dir.ts'
import { StackError } from './stack-error.ts'

const run = promisify(execFile)

export interface PostgresOptions {
  /** Folder of everything this server writes. Created when missing; the data in it is kept. */
  readonly dir: string
  /** @defaultValue a free one */
  readonly port?: number
  /**
   * Whether a commit survives a crash of the machine. Without it commits do not
   * wait for the disk, and still survive the kill of every process: enough for tests.
   * @defaultValue true
   */
  readonly durable?: boolean
  /** Settings of postgresql.conf, over ours. */
  readonly settings?: Readonly<Record<string, string | number>>
  /** Variables over the inherited ones. @defaultValue none */
  readonly env?: Readonly<Record<string, string>>
  /** Offers TLS with this certificate. Clients without TLS are served as well. @defaultValue none */
  readonly tls?: ServerCertificate
}

export interface Postgres extends AsyncDisposable {
  /**
   * The folder of its files: the one asked for or, where that is closed to the
   * account that Postgres runs as, one below `/var/lib`. For who removes it.
   */
  readonly dir: string
  readonly port: number
  /** What `show data_directory` answers. */
  readonly dataDirectory: string
  readonly logFile: string
  /** Of the postmaster; null while it does not run. */
  readonly pid: number | null
  /** Rejects when the server ends and nobody asked it to; never resolves. */
  readonly failed: Promise<never>
  /** A connection string of the superuser. @defaultValue database `postgres` */
  url(database?: string): string
  /** Signals the postmaster: SIGINT is a fast, SIGQUIT an immediate shutdown. After one that ends it, resolves when it has ended. */
  kill(signal: NodeJS.Signals): Promise<void>
  /** Fast shutdown. The data stays. */
  stop(): Promise<void>
  start(): Promise<void>
  restart(): Promise<void>
  /** Ends it at once and removes all its files, wherever they are: for tests. */
  destroy(): Promise<void>
}

/** Starts a server on `dir`, creating its data the first time. Throws {@link StackError} saying what to do. */
export async function startPostgres({
  dir: wanted,
  port,
  durable = true,
  settings = {},
  env = {},
  tls,
}: PostgresOptions): Promise<Postgres> {
  const binaries = await postgresBinaries()
  const { account } = binaries
  const dir = await reachableDir(wanted, account)
  const dataDir = join(dir, 'data')
  const pidFile = join(dir, 'postgres.pid')
  const logFile = join(dir, 'postgres.log')
  await endLeftover({ name: 'Postgres', pidFile, commandHolds: commandOf(dataDir), stopSignal: 'SIGINT' })
  const password = await initialise(dir, dataDir, binaries)
  await removeStaleLock(dataDir)

  const [free] = port === undefined ? await freePorts(1) : [port]
  const chosen = free ?? 0
  const dataDirectory = await realpath(dataDir)
  const url = (database = 'postgres') => `postgres://postgres:${password}@127.0.0.1:${chosen}/${database}`
  const all = { ...ourSettings(durable), ...(await tlsSettings(dir, account, tls)), ...settings, port: chosen }
  const server = new OwnedServer({
    name: 'Postgres',
    command: [
      binaries.postgres,
      '-D',
      dataDir,
      ...Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
    ],
    account,
    env,
    logFile,
    pidFile,
    stopSignal: 'SIGINT',
    graceSeconds: 15,
    answers: () => answersAs(url(), dataDirectory),
    startTimeoutMs: 60_000,
  })
  await server.start()
  return {
    dir,
    port: chosen,
    dataDirectory,
    logFile,
    get pid() {
      return server.pid
    },
    failed: server.failed,
    url,
    kill: (signal) => server.kill(signal),
    stop: () => server.stop(),
    start: () => server.start(),
    restart: () => server.restart(),
    destroy: async () => {
      await server.kill('SIGQUIT')
      await rm(dir, { recursive: true, force: true })
    },
    [Symbol.asyncDispose]: () => server.stop(),
  }
}

function ourSettings(durable: boolean): Record<string, string | number> {
  return {
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    wal_level: 'logical',
    max_connections: 300,
    max_wal_size: '1GB',
    log_checkpoints: 'off',
    ...(durable ? {} : { fsync: 'off', full_page_writes: 'off' }),
  }
}

async function tlsSettings(
  dir: string,
  account: PostgresBinaries['account'],
  tls: ServerCertificate | undefined,
): Promise<Record<string, string>> {
  if (!tls) return {}
  const files = { ssl_cert_file: tls.certificate, ssl_key_file: tls.key }
  for (const [name, pem] of Object.entries(files)) await writePrivate(join(dir, name), pem, account)
  return { ssl: 'on', ...Object.fromEntries(Object.keys(files).map((name) => [name, join(dir, name)])) }
}

/** Writes a file that the server alone can read. */
async function writePrivate(path: string, text: string, account: PostgresBinaries['account']): Promise<void> {
  await rm(path, { force: true })
  await writeFile(path, text, { mode: 0o600 })
  if (account) await chown(path, account.uid, account.gid)
}

/**
 * Creates the cluster the first time, and resolves to the superuser's password.
 *
 * PG_VERSION is the first file that initdb writes, so the mark of a whole
 * cluster is ours, made last; what an interrupted one left is made anew.
 */
async function initialise(dir: string, dataDir: string, { initdb, account }: PostgresBinaries): Promise<string> {
  const passwordFile = join(dir, 'postgres.password')
  const complete = join(dir, 'postgres.complete')
  if (await exists(complete)) return (await readFile(passwordFile, 'utf8')).trim()

  await rm(dataDir, { recursive: true, force: true })
  await mkdir(dataDir, { mode: 0o700 })
  const password = randomBytes(18).toString('base64url')
  await writePrivate(passwordFile, `${password}\n`, account)
  if (account) await chown(dataDir, account.uid, account.gid)
  const flags = ['--username=postgres', '--auth=scram-sha-256', `--pwfile=${passwordFile}`, '--encoding=UTF8']
  const locale = ['--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--locale=C']
  try {
    await run(initdb, [`--pgdata=${dataDir}`, ...flags, ...locale, '--no-sync', '--no-instructions'], {
      cwd: '/',
      ...account,
    })
  } catch (cause) {
    const reason = (cause as { stderr?: string }).stderr?.trim() || (cause as Error).message
    throw new StackError(`Postgres could not create its data in ${dataDir}: ${reason}`, { cause })
  }
  await writeFile(complete, '')
  return password
}

/**
 * Removes the postmaster.pid of a server that is gone, when its number now
 * belongs to another program: Postgres itself would take that for a postmaster.
 * The caller has the folder to itself, so no postmaster starts meanwhile; and
 * backends that outlived theirs still keep a new one out, by shared memory.
 */
async function removeStaleLock(dataDir: string): Promise<void> {
  const lock = join(dataDir, 'postmaster.pid')
  const pid = Number((await readFile(lock, 'utf8').catch(() => '')).split('\n')[0])
  const command = pid > 0 ? await commandLine(pid) : ''
  if (command !== '' && !command.includes(commandOf(dataDir))) await rm(lock, { force: true })
}

/** What only the postmaster of `dataDir` has in its command line. */
function commandOf(dataDir: string): string {
  return `bin/postgres -D ${dataDir} `
}

async function answersAs(url: string, dataDirectory: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 2_000 })
  client.on('error', () => {})
  try {
    await client.connect()
    const { rows } = await client.query<{ data_directory: string }>('show data_directory')
    const actual = rows[0]?.data_directory ?? ''
    if ((await realpath(actual).catch(() => actual)) === dataDirectory) return true
    throw new StackError(
      `Another Postgres, with its data in ${actual}, answers at ${new URL(url).host}. Nothing was done to it.`,
    )
  } catch (error) {
    if (error instanceof StackError) throw error
    // 28P01: somebody answers who does not know our password.
    if ((error as { code?: string }).code === '28P01') {
      throw new StackError(
        `Another Postgres answers at ${new URL(url).host}: it refuses this stack's password. Nothing was done to it.`,
      )
    }
    return false
  } finally {
    await client.end().catch(() => {})
  }
}
