/**
 * A primary and its standby by streaming replication, for tests of a failover.
 * The embedded Postgres has no pg_basebackup: the standby begins as a copy of
 * the primary's files while that one is stopped.
 */
import { execFile } from 'node:child_process'
import { appendFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { type Postgres, startPostgres } from '../../src/local/postgres.ts'
import { eventually } from '../../src/messaging/testing/index.ts'

const run = promisify(execFile)

export interface PostgresPair extends AsyncDisposable {
  readonly primary: Postgres
  readonly standby: Postgres
  /** Whether a commit waits for the standby. Holds from the next commit on. */
  replicate(how: 'synchronously' | 'asynchronously'): Promise<void>
  /** Lets the standby receive nothing more. */
  cutReplication(): Promise<void>
  /** Ends the primary as a power cut would, and makes the standby the primary. */
  failOver(): Promise<void>
}

/** Starts both below `dir`; replication is asynchronous at first. */
export async function startPostgresPair(dir: string): Promise<PostgresPair> {
  await using failed = new AsyncDisposableStack()
  const primary = await startPostgres({ dir: join(dir, 'primary') })
  failed.defer(() => primary.destroy())
  await primary.stop()
  const standbyDir = `${primary.dir}-standby`
  // With owners and modes: Postgres runs under an account of its own where we are root.
  await run('cp', ['-a', primary.dir, standbyDir])
  await run('cp', ['-a', join(standbyDir, 'data', 'PG_VERSION'), join(standbyDir, 'data', 'standby.signal')])
  const { hostname, port, username, password } = new URL(primary.url())
  const conninfo = `host=${hostname} port=${port} user=${username} password=${password} application_name=standby`
  // In its files and not among its arguments, so that it can be changed.
  await appendFile(join(standbyDir, 'data', 'postgresql.auto.conf'), `primary_conninfo = '${conninfo}'\n`)
  await primary.start()
  const standby = await startPostgres({ dir: standbyDir })
  failed.defer(() => standby.destroy())
  const onPrimary = (text: string) => ask(primary, text)
  await eventually('the standby streams', async () => (await onPrimary(STREAMING)).length === 1, 60_000)

  const stack = failed.move()
  return {
    primary,
    standby,
    async replicate(how) {
      // In the primary's files alone: the standby, once promoted, must not wait for one of its own.
      await onPrimary(`alter system set synchronous_standby_names = '${how === 'synchronously' ? 'standby' : ''}'`)
      await onPrimary('select pg_reload_conf()')
      const wanted = how === 'synchronously' ? 'sync' : 'async'
      await eventually(
        `replication is ${wanted}`,
        async () => (await onPrimary(STREAMING))[0]?.sync_state === wanted,
        60_000,
      )
    },
    async cutReplication() {
      await ask(standby, `alter system set primary_conninfo = ''`)
      await ask(standby, 'select pg_reload_conf()')
      await eventually('the standby is cut off', async () => (await onPrimary(STREAMING)).length === 0, 60_000)
    },
    async failOver() {
      await primary.kill('SIGKILL')
      await ask(standby, 'select pg_promote(true, 60)')
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  }
}

const STREAMING = `select sync_state from pg_stat_replication where application_name = 'standby' and state = 'streaming'`

async function ask(server: Postgres, text: string): Promise<readonly Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: server.url(), connectionTimeoutMillis: 5_000 })
  client.on('error', () => {})
  await client.connect()
  try {
    return (await client.query<Record<string, unknown>>(text)).rows
  } finally {
    await client.end().catch(() => {})
  }
}
