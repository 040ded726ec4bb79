/** Ends the servers that global-setup started, removes their data, and sees to it that the run ends. */
import { servers } from './global-setup.ts'

/** Milliseconds that a run may take to end after its last test: more than any client waits for an answer. */
const ENDING_MS = 60_000

export default async function teardown(): Promise<void> {
  const stack = (globalThis as { [servers]?: AsyncDisposableStack })[servers]
  await stack?.disposeAsync()
  // Jest would wait for ever for what a test has left open, in this process where it runs all of them here.
  setTimeout(() => {
    const left = new Set(process.getActiveResourcesInfo())
    process.stderr.write(`A test has left something open; the run is ended: ${[...left].join(', ')}\n`)
    process.exit(1)
  }, ENDING_MS).unref()
}
