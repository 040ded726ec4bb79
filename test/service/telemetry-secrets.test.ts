import { expect, test } from '@jest/globals'
import { SpanStatusCode } from '@opentelemetry/api'
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace'
import { withoutSecrets } from '../../src/service/telemetry-secrets.ts'

const CANARY = 'canary-4711'

test('PC-65 a span keeps the kind of an error and where it was thrown, and nothing that it says', () => {
  const exporter = new InMemorySpanExporter()
  const provider = new TracerProvider({ spanProcessors: [withoutSecrets, new SimpleSpanProcessor({ exporter })] })
  const value = `${CANARY}\n    at ${CANARY}:1\n    at pay (/srv/${CANARY}.ts:1:2)`
  const error = Object.assign(new Error(`invalid input syntax: "${value}"`), { code: '22P02' })

  const span = provider.getTracer('test').startSpan('insert', { attributes: { 'url.query': `id=${CANARY}` } })
  span.recordException(error)
  span.setStatus({ code: SpanStatusCode.ERROR, message: error.message })
  span.end()

  const [ended] = exporter.getFinishedSpans()
  expect(JSON.stringify([ended?.attributes, ended?.events, ended?.status])).not.toContain(CANARY)
  expect(ended?.status).toEqual({ code: SpanStatusCode.ERROR })
  expect(ended?.events[0]?.attributes).toEqual({
    'exception.type': '22P02',
    'exception.stacktrace': expect.stringContaining('telemetry-secrets.test.ts'),
  })
})
