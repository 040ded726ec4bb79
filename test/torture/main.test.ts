import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from '@jest/globals'

const main = fileURLToPath(new URL('./main.ts', import.meta.url))

function run(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const { promise, resolve } = Promise.withResolvers<{ code: number; stdout: string; stderr: string }>()
  const options = { env: { PATH: process.env.PATH, ...env } }
  execFile(process.execPath, [main, ...args], options, (error, stdout, stderr) => {
    resolve({ code: Number(error?.code ?? 0), stdout, stderr })
  })
  return promise
}

test.each(['DATABASE_URL', 'KAFKA_BROKERS'])(
  'breaks no server that %s names',
  async (name) => {
    const { code, stderr } = await run([], { [name]: 'somewhere' })

    expect(code).toBe(3)
    expect(stderr).toContain(`${name} is set. This breaks servers: it uses its own and no others`)
  },
  20_000,
)

test('names the faults that it knows', async () => {
  const { code, stderr } = await run(['--faults', 'relay-kill,sunspots'])

  expect(code).not.toBe(0)
  expect(stderr).toContain('sunspots is none of relay-kill, ')
}, 20_000)
