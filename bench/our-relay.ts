import type { Ground } from './contenders.ts'
export async function startOurRelay(_: Ground): Promise<{ stop(): Promise<void> }> {
  throw new Error('not yet')
}
