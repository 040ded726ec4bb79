/** `npm start` as a whole, with a small program in the service's place. */

import { once } from 'node:events'
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, jest, test } from '@jest/globals'
import pg from 'pg'
import { freePorts } from '../../src/local/free-ports.ts'
import { eventually } from '../../src/messaging/testing/index.ts'
import { type Program, runCommand, runProgram, untilGone } from './processes.ts'
import { elsewhere, place, READY, service, start } from './start-place.ts'

// Two starts of everything, on a busy machine.
jest.setTimeout(600_000)

async function serverPids({
  DATA_DIR,
}: {
  DATA_DIR: string
}): Promise<{ postgres: number; kafka: number; service: number }> {
  const pid = async (path: string) => Number(await readFile(join(DATA_DIR, path), 'utf8'))
  return {
    postgres: await pid('postgres/postgres.pid').catch(() => 0),
    kafka: await pid('kafka/node-1/kafka.pid'),
    service: await pid('service.pid'),
  }
}

/** Listens on a port until the scope ends. */
async function takePort(port: number): Promise<AsyncDisposable> {
  const server = createServer().listen(port, '127.0.0.1')
  await once(server, 'listening')
  return server
}

async function query(program: Program, sql: string): Promise<unknown[]> {
  const url = /"DATABASE_URL":"([^"]+)"/.exec(program.output())?.[1]
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query({ text: sql, rowMode: 'array' })).rows.flat()
  } finally {
    await client.end()
  }
}

test('SIGTERM to npm start drains the service, then stops the servers; the next start finds the data', async () => {
  await using where = await place()
  await using first = runCommand(['npm', 'start', '--', process.execPath, service], where.env)
  await first.says(READY)
  await query(first, 'create table kept as select 42 as answer')

  first.kill('SIGTERM')

  expect(await first.ended).toBe(0)
  expect(first.output()).toMatch(/Stopping.*service drained\n.*Stopped\./s)
  await using second = start(where.env)
  await second.says(READY)
  expect(await query(second, 'select answer from kept')).toEqual([42])
  second.kill('SIGTERM')
  expect(await second.ended).toBe(0)
})

test('a killed start leaves nothing running, and the next one goes on with its data', async () => {
  await using where = await place()
  await using first = start(where.env)
  await first.says(READY)
  await query(first, 'create table kept as select 42 as answer')
  const pids = await serverPids(where.env)

  first.kill('SIGKILL')
  await first.ended
  await using second = start(where.env)
  await second.says(READY)

  await Promise.all([
    untilGone(pids.kafka, 'kafka.Kafka'),
    untilGone(pids.service, 'fake-service'),
    untilGone(pids.postgres, 'bin/postgres'),
  ])
  expect(await query(second, 'select answer from kept')).toEqual([42])
  second.kill('SIGTERM')
  expect(await second.ended).toBe(0)
})

test.each([
  ['0 ends the start with 0', 0, 0, /The program \S+ has ended\. Stopping the rest\.\nStopped\./],
  ['another code fails the start', 3, 1, /The program \S+ ended by itself \(exit code 3\); its log above says why/],
])('a program that ends by itself with %s, and is never told as ready', async (_, code, exit, says) => {
  await using where = await place()

  await using program = runProgram('src/local/main.ts', [process.execPath, '-e', `process.exit(${code})`], {
    ...where.env,
    ...elsewhere,
  })

  expect(await program.ended).toBe(exit)
  expect(program.output()).toMatch(says)
  expect(program.output()).not.toContain('GraphQL')
  expect(program.output()).not.toContain(READY)
})

test('help is help, and an unknown option is no program', async () => {
  await using where = await place()

  await using help = runProgram('src/local/main.ts', ['--help'], where.env)
  await using unknown = runProgram('src/local/main.ts', ['--port', '4100'], where.env)

  expect(await help.ended).toBe(0)
  expect(help.output()).toMatch(/^Usage: npm start -- .*ADMIN_PORT.*KAFKA_BROKERS/s)
  expect(await unknown.ended).toBe(1)
  expect(unknown.output()).toContain("unknown option '--port'")
})

test('a start without servers of its own may stand beside another on the same data, and leaves that alone', async () => {
  await using where = await place()
  await using first = start({ ...where.env, ...elsewhere })
  await first.says(READY)
  const env = await readFile(join(where.env.DATA_DIR, 'env'), 'utf8')
  const [adminPort] = await freePorts(1)

  await using second = start({ ...where.env, ...elsewhere, ROLES: 'relay', ADMIN_PORT: String(adminPort) })
  await second.says('Ctrl-C stops everything')

  expect(second.output()).toMatch(/Roles +relay\n/)
  expect(second.output()).not.toMatch(/GraphQL|Try it/)
  second.kill('SIGTERM')
  expect(await second.ended).toBe(0)
  expect(await readFile(join(where.env.DATA_DIR, 'env'), 'utf8')).toBe(env)
  first.kill('SIGTERM')
  expect(await first.ended).toBe(0)
  await expect(readFile(join(where.env.DATA_DIR, 'env'))).rejects.toThrow('ENOENT')
})

test('a second start on the same data refuses and disturbs nothing', async () => {
  await using where = await place()
  await using first = start(where.env)
  await first.says(READY)
  const [port, adminPort] = await freePorts(2)

  await using second = start({ ...where.env, PORT: String(port), ADMIN_PORT: String(adminPort) })
  await using wrong = start({ ...where.env, PORT: '99999' })

  expect(await second.ended).toBe(1)
  expect(await wrong.ended).toBe(1)
  expect(wrong.output()).toMatch(/^PORT must be a port, 1 to 65535, and is '99999'\.\nAnother start /)
  expect(second.output()).toContain(`Another start (process ${first.pid}) uses ${where.env.DATA_DIR}`)
  expect(second.output()).toContain(`kill ${first.pid}`)
  expect(await query(first, 'select 1')).toEqual([1])
  first.kill('SIGINT')
  expect(await first.ended).toBe(0)
})

test('a server that dies takes the rest down in order, with exit code 1', async () => {
  await using where = await place()
  await using program = start(where.env)
  await program.says(READY)
  const pids = await serverPids(where.env)

  process.kill(pids.kafka, 'SIGKILL')

  expect(await program.ended).toBe(1)
  expect(program.output()).toMatch(/Kafka node 1 ended by itself. Stopping the rest.*service drained/s)
})

test('a second Ctrl-C, a while after the first, ends all at once', async () => {
  await using where = await place()
  await using program = runProgram('src/local/main.ts', [process.execPath, service, 'stubborn'], where.env)
  await program.says(READY)
  const pids = await serverPids(where.env)

  program.kill('SIGINT')
  await program.says('service goes on')
  await sleep(600)
  program.kill('SIGINT')

  expect(await program.ended).toBe(130)
  await Promise.all([untilGone(pids.kafka, 'kafka.Kafka'), untilGone(pids.service, 'fake-service')])
})

test('a taken port is named with the variable to change', async () => {
  await using where = await place()
  await using _taken = await takePort(Number(where.env.ADMIN_PORT))

  await using program = start(where.env)

  expect(await program.ended).toBe(1)
  expect(program.output()).toContain(`Port ${where.env.ADMIN_PORT} is taken. Set ADMIN_PORT to another`)
})

test('the port that is proposed in place of a taken one is not that of the other', async () => {
  await using where = await place()
  const port = Number(where.env.PORT)
  await using _taken = await takePort(port)

  await using program = start({ ...where.env, ADMIN_PORT: String(port + 100) })

  expect(await program.ended).toBe(1)
  expect(program.output()).toContain(`Set PORT to another: PORT=${port + 200} npm start`)
})

test('without Java the message says what to install, and what to do without it', async () => {
  await using where = await place()
  const bin = join(where.dir, 'bin')
  await mkdir(bin)
  for (const program of ['sh', 'id']) await symlink(`/usr/bin/${program}`, join(bin, program))

  await using program = start({ ...where.env, PATH: bin })

  expect(await program.ended).toBe(1)
  expect(program.output()).toMatch(
    /Kafka needs Java 17 or later, and there is no java on the path.*apt install.*KAFKA_BROKERS/,
  )
})

test('without Maven, and nothing fetched before, the message says what to install', async () => {
  await using where = await place()
  const bin = join(where.dir, 'bin')
  await mkdir(bin)
  for (const program of ['sh', 'id', 'java']) await symlink(`/usr/bin/${program}`, join(bin, program))

  await using program = start({ ...where.env, PATH: bin, XDG_CACHE_HOME: where.dir })

  expect(await program.ended).toBe(1)
  expect(program.output()).toMatch(/Maven \(mvn\) fetches Kafka and is not installed.*apt install maven.*KAFKA_BROKERS/)
})

test('all that is in the way is named at once, before anything is started: settings, ports and programs', async () => {
  await using where = await place()
  const bin = join(where.dir, 'bin')
  await mkdir(bin)
  for (const program of ['sh', 'id']) await symlink(`/usr/bin/${program}`, join(bin, program))
  await using _taken = await takePort(Number(where.env.ADMIN_PORT))
  const wrong = { LOG_LEVEL: 'loud', KAFKA_TLS: 'yes', PORT: 'x', XDG_CACHE_HOME: where.dir, PATH: bin }

  await using program = runProgram('src/local/main.ts', [], { ...where.env, ...wrong })

  expect(await program.ended).toBe(1)
  expect(program.output().split('\n')).toEqual([
    "PORT must be a port, 1 to 65535, and is 'x'.",
    'KAFKA_TLS must be true or false.',
    expect.stringMatching(/^LOG_LEVEL must be one of/),
    expect.stringMatching(`^Port ${where.env.ADMIN_PORT} is taken`),
    expect.stringMatching(/^Kafka needs Java/),
    expect.stringMatching(/^Maven/),
    '',
  ])
})

test.each([
  ['no-such-program', 'is not there.'],
  ['./no/such/program', 'is not there.'],
  ['./src', 'is not there.'],
  [
    'examples/quick-start.ts',
    'is a file that cannot be run by itself. If it is for Node: npm start -- node examples/quick-start.ts',
  ],
])('a program that cannot be run is named before anything is started, with the way out: %s', async (name, problem) => {
  await using where = await place()

  await using program = runProgram('src/local/main.ts', [name], { ...where.env, ...elsewhere })

  expect(await program.ended).toBe(1)
  expect(program.output()).toBe(`The program ${name} ${problem}\n`)
})

test('a setting that cannot be used is named', async () => {
  await using where = await place()

  await using program = start({ ...where.env, PORT: '99999' })

  expect(await program.ended).toBe(1)
  expect(program.output()).toBe("PORT must be a port, 1 to 65535, and is '99999'.\n")
})

test('without Jaeger and Go the start says so and goes on', async () => {
  await using where = await place()
  const bare = { OTEL_EXPORTER_OTLP_ENDPOINT: '', XDG_CACHE_HOME: where.dir, PATH: '/nonexistent' }

  await using program = start({ ...where.env, ...elsewhere, ...bare })

  expect(await program.says(READY)).toMatch(/Jaeger: not installed, and no Go to build it.*OTEL_EXPORTER_OTLP_ENDPOINT/)
  program.kill('SIGTERM')
  expect(await program.ended).toBe(0)
})

test('a build of Jaeger that fails is reported, and the start goes on', async () => {
  await using where = await place()
  const bin = join(where.dir, 'bin')
  await mkdir(bin)
  for (const program of ['sh', 'nice']) await symlink(`/usr/bin/${program}`, join(bin, program))
  const go = '#!/bin/sh\n[ "$1" = version ] || { echo no network >&2; exit 1; }\n'
  await writeFile(join(bin, 'go'), go, { mode: 0o755 })
  const bare = { OTEL_EXPORTER_OTLP_ENDPOINT: '', XDG_CACHE_HOME: where.dir, PATH: bin }

  await using program = start({ ...where.env, ...elsewhere, ...bare })

  await program.says(READY)
  await program.says('Jaeger could not be built (exit code 1): no network\nThe rest goes on without traces.')
  program.kill('SIGTERM')
  expect(await program.ended).toBe(0)
})

test('a stop while Jaeger is being built ends the compilers that the build has started', async () => {
  await using where = await place()
  const bin = join(where.dir, 'bin')
  await mkdir(bin)
  for (const program of ['sh', 'nice', 'sleep']) await symlink(`/usr/bin/${program}`, join(bin, program))
  const go = `#!/bin/sh\n[ "$1" = version ] && exit\nsleep 98768 & echo $! >"$COMPILER"; wait\n`
  await writeFile(join(bin, 'go'), go, { mode: 0o755 })
  const COMPILER = join(where.dir, 'compiler.pid')
  const bare = { OTEL_EXPORTER_OTLP_ENDPOINT: '', XDG_CACHE_HOME: where.dir, PATH: bin, COMPILER }

  await using program = start({ ...where.env, ...elsewhere, ...bare })
  await program.says(READY)
  await eventually('it compiles', async () => (await readFile(COMPILER, 'utf8').catch(() => '')).endsWith('\n'))
  const compiler = Number(await readFile(COMPILER, 'utf8'))
  program.kill('SIGTERM')

  expect(await program.ended).toBe(0)
  await untilGone(compiler, 'sleep 98768')
})

test('servers of the environment are used, and none are started', async () => {
  await using where = await place()

  await using program = start({ ...where.env, ...elsewhere })
  await program.says(READY)

  expect(program.output()).toContain('"DATABASE_URL":"postgres://elsewhere/db","KAFKA_BROKERS":"elsewhere:9092"')
  await expect(readFile(join(where.env.DATA_DIR, 'kafka', 'cluster.json'))).rejects.toThrow('ENOENT')
  program.kill('SIGTERM')
  expect(await program.ended).toBe(0)
})
