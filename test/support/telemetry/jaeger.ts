/** A real Jaeger for tests: one that is installed or built already, else one that Go builds for them. */
import { test } from '@jest/globals'
import { buildJaeger, canBuildJaeger, jaegerBinary } from '../../../src/local/jaeger-binary.ts'

/** Milliseconds for a build on a busy machine; an idle one takes three minutes. */
export const BUILD_MS = 1_800_000

const installed = await jaegerBinary()
const available = installed !== null || (await canBuildJaeger())

/** Where neither Jaeger nor Go is this skips, and is shown as such; in CI that is a failure. */
export const withJaeger = available || process.env.CI ? test : test.skip

/** Its path. Takes up to {@link BUILD_MS}. */
export async function jaegerForTests(): Promise<string> {
  if (!available) throw new Error('Neither Jaeger nor Go, which builds it, is on the path: CI needs one of them')
  return installed ?? (await buildJaeger({ signal: AbortSignal.timeout(BUILD_MS) }))
}
