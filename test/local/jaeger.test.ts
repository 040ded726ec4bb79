import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { startJaeger } from '../../src/local/jaeger.ts'
import { jaegerBinary } from '../../src/local/jaeger-binary.ts'
import { until } from '../support/telemetry/wait.ts'

const binary = await jaegerBinary()
// Building it takes minutes, which `npm start` does in the background and a test must not.
const withJaeger = binary === null ? test.skip : test

withJaeger('Jaeger shows a span that was sent over OTLP', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'jaeger-'))
  await using _dir = { [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }) }
  await using jaeger = await startJaeger({ binary: binary ?? '', dir })
  const traceId = '0af7651916cd43dd8448eb211c80319c'

  const sent = await fetch(`${jaeger.otlpEndpoint}/v1/traces`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(oneSpan(traceId)),
  })

  expect(sent.status).toBe(200)
  expect(await storedSpanNames(jaeger.url, traceId)).toEqual(['create orders'])
})

function oneSpan(traceId: string) {
  const now = BigInt(Date.now()) * 1_000_000n
  const span = {
    traceId,
    spanId: 'b7ad6b7169203331',
    name: 'create orders',
    kind: 4,
    startTimeUnixNano: String(now),
    endTimeUnixNano: String(now + 1_000_000n),
  }
  const attributes = [{ key: 'service.name', value: { stringValue: 'orders-api' } }]
  return { resourceSpans: [{ resource: { attributes }, scopeSpans: [{ spans: [span] }] }] }
}

/** Asks until the trace is stored: it is 404 before. */
async function storedSpanNames(url: string, traceId: string): Promise<string[]> {
  return await until('The trace', async () => {
    const response = await fetch(`${url}/api/v3/traces/${traceId}`)
    if (!response.ok) return null
    const { result } = (await response.json()) as {
      result: { resourceSpans: { scopeSpans: { spans: { name: string }[] }[] }[] }
    }
    return result.resourceSpans.flatMap(({ scopeSpans }) =>
      scopeSpans.flatMap(({ spans }) => spans.map(({ name }) => name)),
    )
  })
}
