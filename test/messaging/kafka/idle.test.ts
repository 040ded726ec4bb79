import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from '@jest/globals'
import { testBrokers, uniqueTopic } from '../../support/kafka.ts'

const script = new URL('./idle-client.ts', import.meta.url).pathname
const IDLE_MS = 8_000

test('K14 PC-82 costs a fraction of what the bare client does when idle, and warns of nothing', async () => {
  // Side by side, so that how fast or busy the machine is says nothing.
  const [ours, bare] = await Promise.all([rest('ours'), rest('bare')])

  expect(ours.warnings).toEqual([])
  expect(ours.stderr).toBe('')
  expect(ours.cpuMs).toBeLessThan(bare.cpuMs / 2)
})

/** A publisher with eight partitions and a subscriber, in a process of their own, with nothing to do. */
async function rest(whose: 'ours' | 'bare') {
  const args = [script, whose, testBrokers()[0] ?? '', uniqueTopic('idle'), String(IDLE_MS)]
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [
    '--disable-warning=ExperimentalWarning',
    ...args,
  ])
  return { stderr, ...(JSON.parse(stdout) as { cpuMs: number; warnings: string[] }) }
}
