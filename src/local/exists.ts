/** Whether a path is there. */
import { stat } from 'node:fs/promises'

/** False also when a folder above it cannot be entered. */
export async function exists(path: string): Promise<boolean> {
  return await stat(path).then(
    () => true,
    () => false,
  )
}
