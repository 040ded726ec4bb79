/**
 * A minute of the torture over TLS, from a fixed seed; the long forms are run by
 * hand: `npm run torture`. They hold the system to 15 s after each fault, which
 * a machine that runs tests beside others cannot be held to.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { volumeProblem } from '../support/volume.ts'
import { faults } from '../torture/faults.ts'
import { torture } from '../torture/run.ts'

const noVolume = await volumeProblem()
const without = noVolume === null ? '' : ` (without disk-full-postgres: ${noVolume})`
const minutes = Number(process.env.SYSTEM_TORTURE_MINUTES ?? 1)

test(`F35 ${minutes} minutes of random faults over TLS lose, invent and reorder nothing${without}`, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'graphql-outbox-torture-'))
  const { verdict, failedFaults } = await torture({
    seed: 3,
    minutes,
    faults: Object.keys(faults),
    relays: 2,
    consumers: 1,
    clients: 6,
    secure: true,
    steadyWithin: 120,
    dir,
    progress: () => {},
  })

  expect({ verdict: verdict.verdict, doubts: verdict.doubts, violations: verdict.violations }).toEqual({
    verdict: 'valid',
    doubts: [],
    violations: [],
  })
  expect(failedFaults).toEqual([])
  await rm(dir, { recursive: true, force: true })
}, 1_200_000)
