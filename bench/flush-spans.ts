/** Exports what a thread has of spans, in the main thread and in that of the relay. */
import { BroadcastChannel } from 'node:worker_threads'
import { ProxyTracerProvider, trace } from '@opentelemetry/api'

/** Where the process asks its thread to flush, and is told that it has. */
const FLUSH_CHANNEL = 'bench:flush'

/** Resolves once this thread's spans are exported; at once without telemetry. */
async function flushSpans(): Promise<void> {
  const provider = trace.getTracerProvider()
  const made = provider instanceof ProxyTracerProvider ? provider.getDelegate() : provider
  await (made as { forceFlush?(): Promise<void> }).forceFlush?.()
}

/** Flushes whenever the process asks, until the thread ends. */
export function flushWhenAsked(): void {
  const channel = new BroadcastChannel(FLUSH_CHANNEL)
  channel.onmessage = async () => {
    await flushSpans()
    channel.postMessage('flushed')
  }
  channel.unref()
}

/** Resolves once both this thread's spans and its worker's are exported. */
export async function flushBoth(): Promise<void> {
  const channel = new BroadcastChannel(FLUSH_CHANNEL)
  const flushed = new Promise((resolve) => {
    channel.onmessage = resolve
  })
  channel.postMessage('flush')
  await Promise.all([flushed, flushSpans()])
  channel.close()
}
