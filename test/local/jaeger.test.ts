import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { startJaeger } from '../../src/local/jaeger.ts'
import { jaegerBinary } from '../../src/local/jaeger-binary.ts'
import { untilTraced } from '../support/telemetry/jaeger-traces.ts'
import { sendSpan } from '../support/telemetry/one-span.ts'

const binary = await jaegerBinary()
// Building it takes minutes, which `npm start` does in the background and a test must not.
const withJaeger = binary === null ? test.skip : test

withJaeger('Jaeger shows a span that was sent over OTLP, and sends none of its own', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'jaeger-'))
  await using _dir = { [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }) }
  await using jaeger = await startJaeger({ binary: binary ?? '', dir })
  const traceId = '0af7651916cd43dd8448eb211c80319c'

  expect(await sendSpan(jaeger.otlpEndpoint, traceId)).toBe(200)

  const [span] = await untilTraced(jaeger.url, traceId, (spans) => spans.length === 1)
  expect(span?.name).toBe('create orders')
  // What it would send of the question above, it would send at its end at the latest, to the port of every collector.
  await jaeger.stop()
  expect(await readFile(jaeger.logFile, 'utf8')).not.toContain(':4317')
})
