import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from '@jest/globals'

const main = fileURLToPath(new URL('./main.ts', import.meta.url))

function run(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const { promise, resolve } = Promise.withResolvers<{ code: number; stdout: string; stderr: string }>()
  const options = { env: { PATH: process.env.PATH, ...env }, timeout: 50_000 }
  execFile(process.execPath, [main, ...args], options, (error, stdout, stderr) => {
    resolve({ code: Number(error?.code ?? 0), stdout, stderr })
  })
  return promise
}

test.each(['DATABASE_URL', 'KAFKA_BROKERS'])('breaks no server that %s names', async (name) => {
  const { code, stderr } = await run([], { [name]: 'somewhere' })

  expect(code).toBe(3)
  expect(stderr).toContain(`${name} is set. This breaks servers: it uses its own and no others`)
})

test('names the faults that it knows', async () => {
  const { code, stderr } = await run(['--faults', 'relay-kill,sunspots'])

  expect(code).not.toBe(0)
  expect(stderr).toContain('sunspots is none of relay-kill, ')
})

test('tells a run that could not take place from one whose promise was broken, and names the seed at once', async () => {
  const { code, stderr } = await run(['--seed', '4711', '--secure', '--out', '/dev/null/nowhere'])

  expect(code).toBe(3)
  expect(stderr).toMatch(/seed 4711, 10 minutes over TLS and SCRAM[\s\S]*It could not run: .*ENOTDIR/)
})
