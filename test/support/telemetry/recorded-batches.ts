/** The real SDK with our sampler and an exporter in memory, for the traces of batches. */
import { context, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace'
import { createSampler } from '../../../src/service/telemetry-sampler.ts'

/** Registers it for this test file; what is recorded is in the exporter at once. */
export function recordBatches(): InMemorySpanExporter {
  const exporter = new InMemorySpanExporter()
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  trace.setGlobalTracerProvider(
    new TracerProvider({
      // So few requests are recorded that none is left of batches, were they drawn once more.
      sampler: createSampler({ parentBased: true, ratio: 1e-9 }),
      spanProcessors: [new SimpleSpanProcessor({ exporter })],
    }),
  )
  return exporter
}
