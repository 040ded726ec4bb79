/** PgBouncer in transaction mode before the test's Postgres, where the machine has it. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { accessSync, constants } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { freePorts } from '../../src/local/free-ports.ts'
import { testPostgresUrl } from './postgres.ts'

/** The program's path; `null` where it is not installed (Debian: `apt-get install pgbouncer`). */
export const pgbouncerPath: string | null = find('pgbouncer')

export interface PgBouncer extends AsyncDisposable {
  /** A database's connection string by way of the pooler. */
  url(database: string): string
}

/** Starts it with `serverConnections` connections to each database, shared by all clients. */
export async function startPgBouncer(serverConnections = 4): Promise<PgBouncer> {
  if (pgbouncerPath === null) throw new Error('pgbouncer is not installed')
  const target = new URL(testPostgresUrl())
  const [port = 0] = await freePorts(1)
  const dir = await mkdtemp(join(tmpdir(), 'graphql-outbox-test-'))
  const file = join(dir, 'pgbouncer.ini')
  const credentials = `user=${decodeURIComponent(target.username)} password='${decodeURIComponent(target.password)}'`
  await writeFile(
    file,
    `[databases]
* = host=${target.hostname} port=${target.port} ${credentials}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = ${serverConnections}
max_client_conn = 500
ignore_startup_parameters = extra_float_digits,statement_timeout,lock_timeout,idle_in_transaction_session_timeout
`,
    { mode: 0o644 },
  )
  // It refuses to run as root. Read before the change of account, the file needs no other rights.
  const account = process.getuid?.() === 0 ? ['-u', 'nobody'] : []
  await using failed = new AsyncDisposableStack()
  failed.defer(() => rm(dir, { recursive: true, force: true }))
  const child = spawn(pgbouncerPath, [...account, '--quiet', file], { stdio: 'ignore' })
  failed.defer(async () => {
    const ended = once(child, 'exit')
    if (child.exitCode === null && child.kill('SIGKILL')) await ended
  })
  await listening(port, child)
  const stack = failed.move()
  return {
    url(database) {
      const url = new URL(target)
      url.port = String(port)
      url.hostname = '127.0.0.1'
      url.pathname = database
      return url.href
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  }
}

async function listening(port: number, child: ChildProcess): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    const socket = connect(port, '127.0.0.1')
    try {
      await once(socket, 'connect')
      return
    } catch (error) {
      if (child.exitCode !== null) throw new Error(`pgbouncer ended with exit code ${child.exitCode}`)
      if (attempt > 1_200) throw error
      await new Promise((resolve) => {
        setTimeout(resolve, 50)
      })
    } finally {
      socket.destroy()
    }
  }
}

function find(program: string): string | null {
  for (const dir of [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/usr/local/sbin']) {
    const path = join(dir, program)
    try {
      accessSync(path, constants.X_OK)
      return path
    } catch {
      // Not here.
    }
  }
  return null
}
