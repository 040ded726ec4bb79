/** The README's example, run as a reader would run it. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { expect, test } from '@jest/globals'
import { startSystemStack } from '../support/system/stack.ts'

test('the quick start sends a mutation, publishes its event, applies its effect and ends by itself', async () => {
  await using stack = await startSystemStack()
  const example = spawn(process.execPath, ['examples/quick-start.ts'], {
    env: { ...process.env, DATABASE_URL: stack.env.DATABASE_URL, KAFKA_BROKERS: stack.env.KAFKA_BROKERS },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  using _example = { [Symbol.dispose]: () => void example.kill('SIGKILL') }
  const [out, errors, [code]] = await Promise.all([text(example.stdout), text(example.stderr), once(example, 'exit')])

  expect({ out: out.trim().split('\n'), errors, code }).toEqual({
    out: ['mutation: {"rename":"Ada"}', 'effect: Hello, Ada'],
    errors: '',
    code: 0,
  })
})
