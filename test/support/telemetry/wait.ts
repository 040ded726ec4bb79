/** For what has no event to wait for: metrics, logs, another process's database. Fails rather than waits for ever. */

/** Asks every 100 ms until `read` gives something, and resolves to it; rejects after `timeoutMs`, saying `what` was awaited. */
export async function until<T>(what: string, read: () => Promise<T | null>, timeoutMs = 120_000): Promise<T> {
  const deadline = performance.now() + timeoutMs
  while (performance.now() < deadline) {
    const found = await read()
    if (found !== null) return found
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  throw new Error(`${what} did not come within ${timeoutMs} ms`)
}
