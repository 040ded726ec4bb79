/** Which lanes a worker should take or give up. Pure: the whole view goes in, a plan comes out. */
import type { LaneState } from '../source.ts'

/** What one worker of ours should do. */
export interface BalancePlan {
  readonly owner: string
  readonly claim: readonly number[]
  readonly yield: readonly number[]
}

/**
 * A fair share for each live worker: `floor(lanes / workers)`, one more for the
 * first few in the order of their uuids, so that every process comes to the
 * same result by itself.
 *
 * Lanes that are free or whose owner has expired are claimed up to the share;
 * what is above it is given up, the highest lanes first. `ours` are the workers
 * of this process, for which a plan is made.
 */
export function balance(
  lanes: readonly LaneState[],
  liveOwners: readonly string[],
  ours: readonly string[],
): readonly BalancePlan[] {
  const live = [...new Set([...liveOwners, ...ours])].sort()
  const owned = new Map<string, number[]>(live.map((owner) => [owner, []]))
  const free: number[] = []
  for (const { lane, owner } of lanes) {
    const lanesOfOwner = owner === null ? undefined : owned.get(owner)
    if (lanesOfOwner === undefined) free.push(lane)
    else lanesOfOwner.push(lane)
  }

  const base = Math.floor(lanes.length / live.length)
  const withOneMore = lanes.length % live.length
  return live.flatMap((owner, index) => {
    const share = base + (index < withOneMore ? 1 : 0)
    const current = owned.get(owner) ?? []
    if (!ours.includes(owner)) return []
    return [{ owner, claim: free.splice(0, Math.max(0, share - current.length)), yield: current.slice(share) }]
  })
}
