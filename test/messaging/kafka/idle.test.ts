import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, jest, test } from '@jest/globals'
import { testBrokers, uniqueTopic } from '../../support/kafka.ts'

jest.setTimeout(60_000)

const script = new URL('./idle-client.ts', import.meta.url).pathname
const IDLE_MS = 8_000

test('K14 PC-82 costs next to nothing when idle, and warns of nothing', async () => {
  const args = [
    '--disable-warning=ExperimentalWarning',
    script,
    testBrokers()[0] ?? '',
    uniqueTopic('idle'),
    String(IDLE_MS),
  ]
  const { stdout, stderr } = await promisify(execFile)(process.execPath, args)

  const { cpuMs, warnings } = JSON.parse(stdout) as { cpuMs: number; warnings: string[] }
  expect(warnings).toEqual([])
  expect(stderr).toBe('')
  // A publisher with eight partitions and a subscriber; the bare client takes 3 to 4 % for each.
  expect(cpuMs / IDLE_MS).toBeLessThan(0.025)
})
