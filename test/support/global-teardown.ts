/** Ends the servers that global-setup started and removes their data. */
import { servers } from './global-setup.ts'

export default async function teardown(): Promise<void> {
  const stack = (globalThis as { [servers]?: AsyncDisposableStack })[servers]
  await stack?.disposeAsync()
}
