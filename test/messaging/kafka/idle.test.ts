import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from '@jest/globals'
import { testBrokers, uniqueTopic } from '../../support/kafka.ts'

const script = new URL('./idle-client.ts', import.meta.url).pathname
const IDLE_MS = 8_000

test('K14 PC-82 has next to nothing to do when idle, and warns of nothing', async () => {
  const args = [
    '--disable-warning=ExperimentalWarning',
    script,
    testBrokers()[0] ?? '',
    uniqueTopic('idle'),
    String(IDLE_MS),
  ]
  const { stdout, stderr } = await promisify(execFile)(process.execPath, args)

  const { turnsPerSecond, warnings } = JSON.parse(stdout) as { turnsPerSecond: number; warnings: string[] }
  expect(warnings).toEqual([])
  expect(stderr).toBe('')
  // A publisher with eight partitions and a subscriber; the bare client goes round a thousand times for each. A busy
  // machine makes it fewer, never more.
  expect(turnsPerSecond).toBeLessThan(100)
})
