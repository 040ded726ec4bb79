import { spawn } from 'node:child_process'
import { chmod, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { expect, test } from '@jest/globals'
import pg from 'pg'
import { createCertificate } from '../../src/local/certificates.ts'
import { type PostgresOptions, startPostgres } from '../../src/local/postgres.ts'
import { testPostgresUrl } from '../support/postgres.ts'

async function temporaryDir() {
  const path = await mkdtemp(join(tmpdir(), 'postgres-'))
  await chmod(path, 0o755)
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) }
}

async function start(options: PostgresOptions) {
  const server = await startPostgres({ durable: false, ...options })
  return { server, [Symbol.asyncDispose]: () => server.destroy() }
}

async function query(connection: string | pg.ClientConfig, sql: string): Promise<unknown[]> {
  const client = new pg.Client(connection)
  client.on('error', () => {})
  await client.connect()
  try {
    return (await client.query({ text: sql, rowMode: 'array' })).rows.flat()
  } finally {
    await client.end()
  }
}

test('Postgres comes back with its data after a stop and a crash, in a folder of any name', async () => {
  await using dir = await temporaryDir()
  await using running = await start({ dir: join(dir.path, 'Zoë, her data') })
  const { server } = running
  await query(server.url(), 'create table kept as select 42 as answer')

  await server.restart()
  expect(await query(server.url(), 'select answer from kept')).toEqual([42])

  await server.kill('SIGKILL')
  expect(server.pid).toBeNull()
  await server.start()
  expect(await query(server.url(), 'select answer from kept')).toEqual([42])
})

test('Postgres starts although its lock file names a process that is another program now', async () => {
  await using dir = await temporaryDir()
  await using running = await start({ dir: dir.path })
  const { server } = running
  await query(server.url(), 'create table kept as select 42 as answer')
  const lock = join(server.dataDirectory, 'postmaster.pid')
  const lines = await readFile(lock, 'utf8')
  await server.kill('SIGKILL')
  const { uid } = await stat(server.dataDirectory)
  const stranger = spawn('sleep', ['98766'], { uid })
  await using _stranger = { [Symbol.asyncDispose]: async () => void stranger.kill('SIGKILL') }
  await writeFile(lock, lines.replace(/^\d+/, String(stranger.pid)))

  await using again = await start({ dir: dir.path })

  expect(await query(again.server.url(), 'select answer from kept')).toEqual([42])
  expect(stranger.exitCode).toBeNull()
})

test('a Postgres that is not this one is not used', async () => {
  await using dir = await temporaryDir()
  const port = Number(new URL(testPostgresUrl()).port)

  await expect(start({ dir: dir.path, port })).rejects.toThrow(`Another Postgres answers at 127.0.0.1:${port}`)
})

test('what a Postgres says when it cannot start is in the error', async () => {
  await using dir = await temporaryDir()

  await expect(start({ dir: dir.path, settings: { no_such_setting: 1 } })).rejects.toThrow(
    /did not start.*no_such_setting/s,
  )
})

test('Postgres serves TLS that a client can verify in full', async () => {
  await using dir = await temporaryDir()
  const certificate = await createCertificate(join(dir.path, 'tls'))
  await using running = await start({ dir: join(dir.path, 'pg'), tls: certificate })
  const connectionString = running.server.url()
  const inUse = 'select ssl from pg_stat_ssl where pid = pg_backend_pid()'

  expect(await query({ connectionString, ssl: { ca: certificate.ca } }, inUse)).toEqual([true])
  await expect(query({ connectionString, ssl: {} }, inUse)).rejects.toThrow('certificate')
})

const asRoot = process.getuid?.() === 0 ? test : test.skip
asRoot('under root Postgres runs although its folder lies below a closed home', async () => {
  await using dir = await temporaryDir()
  const home = join(dir.path, 'home')
  await mkdir(home, { mode: 0o700 })

  await using running = await start({ dir: join(home, 'checkout', '.data') })

  expect(dirname(running.server.dir)).toMatch(/graphql-outbox$/)
  expect(await query(running.server.url(), 'show data_directory')).toEqual([running.server.dataDirectory])
})
