/** What `npm start` tells the service beside its own environment, and what it leaves to that. */
import { execFile } from 'node:child_process'
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseEnv, promisify } from 'node:util'
import { expect, test } from '@jest/globals'
import { elsewhere, place, READY, start } from './start-place.ts'

const run = promisify(execFile)

test('what the environment says of telemetry and of the log is what the service gets', async () => {
  await using where = await place()
  const said = {
    LOG_FORMAT: 'text',
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://127.0.0.1:1/v1/traces',
    OTEL_TRACES_SAMPLER: 'parentbased_always_off',
    OUTBOX_NAME: 'mine',
    OUTBOX_TRACES_BATCH_RATIO: '0.5',
    OUTBOX_TRACES_WAIT: 'false',
  }

  await using program = start({
    ...where.env,
    ...elsewhere,
    ...said,
    OTEL_EXPORTER_OTLP_ENDPOINT: '',
    TOPIC_PREFIX: 'shop.',
    KAFKA_BROKER: 'misspelt:1',
  })

  const output = await program.says(READY)
  const lines = output.split('\n').filter((line) => /^(OTEL|OUTBOX|LOG)_\w+=./.test(line))
  expect(lines).toEqual(Object.entries(said).map(([name, value]) => `${name}=${value}`))
  expect(output).toContain(`traces go to ${said.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT}`)
  const shared = parseEnv(await readFile(join(where.env.DATA_DIR, 'env'), 'utf8'))
  expect(shared).not.toHaveProperty('KAFKA_BROKER')
  expect(shared).toMatchObject({
    OUTBOX_TRACES_WAIT: 'false',
    OUTBOX_NAME: 'mine',
    TOPIC_PREFIX: 'shop.',
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: said.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
  })
  program.kill('SIGTERM')
  expect(await program.ended).toBe(0)
})

test.each([
  'postgres://me:a$b@elsewhere/db?sslmode=verify-full&sslrootcert=/a',
  "postgres://me:a'b@elsewhere/db?sslmode=verify-full&sslrootcert=/a",
])('a shell and Node read the same address from the file of a start: %s', async (address) => {
  await using where = await place()

  await using program = start({ ...where.env, ...elsewhere, DATABASE_URL: address })

  await program.says(READY)
  const file = join(where.env.DATA_DIR, 'env')
  const { stdout } = await run('sh', ['-c', `. '${file}'; printf %s "$DATABASE_URL"`])
  expect(stdout).toBe(address)
  expect(parseEnv(await readFile(file, 'utf8'))).toMatchObject({ DATABASE_URL: address })
  program.kill('SIGTERM')
  expect(await program.ended).toBe(0)
})

test('where the environment is silent, traces go to the local Jaeger, which need not be there, and show how long an event waited', async () => {
  await using where = await place()
  const bin = join(where.dir, 'bin')
  await mkdir(bin)
  await symlink('/usr/bin/sh', join(bin, 'sh'))
  // Programs enough to try to build a Jaeger, and none to succeed.
  await writeFile(join(bin, 'go'), '#!/bin/sh\n[ "$1" = version ]\n', { mode: 0o755 })
  const bare = { OTEL_EXPORTER_OTLP_ENDPOINT: '', XDG_CACHE_HOME: where.dir, PATH: bin }

  await using program = start({ ...where.env, ...elsewhere, ...bare })

  const output = await program.says(READY)
  const endpoint = /^OTEL_EXPORTER_OTLP_ENDPOINT=(http:\/\/127\.0\.0\.1:\d+)$/m.exec(output)?.[1]
  expect(output).toMatch(/^OUTBOX_TRACES_WAIT=true$/m)
  const { JAEGER_URL, JAEGER_SPAN_METRICS } = parseEnv(await readFile(join(where.env.DATA_DIR, 'env'), 'utf8'))
  expect(JAEGER_URL).toMatch(/^http:/)
  for (const line of [`JAEGER_URL=${JAEGER_URL}`, `JAEGER_SPAN_METRICS=${JAEGER_SPAN_METRICS}`])
    expect(output.split('\n')).toContain(line)
  await program.says('The rest goes on without traces')
  expect((await fetch(`${endpoint}/v1/traces`, { method: 'POST', body: 'spans' })).status).toBe(200)
  program.kill('SIGTERM')
  expect(await program.ended).toBe(0)
})

test('no Jaeger is started for traces that are switched off', async () => {
  await using where = await place()

  await using program = start({
    ...where.env,
    ...elsewhere,
    OTEL_EXPORTER_OTLP_ENDPOINT: '',
    OTEL_TRACES_EXPORTER: 'none',
  })

  const output = await program.says(READY)
  expect(output).toContain('the environment switches traces off')
  expect(output).not.toMatch(/^OTEL_EXPORTER_OTLP_ENDPOINT=./m)
  program.kill('SIGTERM')
  expect(await program.ended).toBe(0)
})
