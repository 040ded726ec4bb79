/** The rules by which another partition count comes into use. */
import type { Mutation } from './mutation.ts'

const CALL = 'src/messaging/relay/adopt-partitions.ts'
const LEASES = 'src/messaging/relay/lease-queries.ts'
const WORKER = 'src/messaging/relay/adoptions.ts'
const DESTINATIONS = 'src/messaging/relay/destinations.ts'

const TEST = 'test/messaging/relay/adopt-partitions.test.ts'

export const ADOPTION: readonly Mutation[] = [
  {
    name: 'adoption: workers not waited for',
    edits: [{ file: LEASES, find: 'return rows[0]?.count ?? 0', replace: 'return 0' }],
    test: TEST,
    title: 'waits for a send that is under way, which ends where it began',
  },
  {
    name: 'adoption: a worker at rest while it sends',
    edits: [
      { file: WORKER, find: 'queues.isIdle(topic) && heldRuns.isIdle(topic) ? [adoption] : []', replace: '[adoption]' },
    ],
    test: TEST,
    title: 'waits for a send that is under way, which ends where it began',
  },
  {
    name: 'adoption: what waits is sent by the old count',
    edits: [
      {
        file: WORKER,
        find: 'for (const taken of queues.clear(topic)) {',
        replace: 'for (const taken of [] as never[]) {',
      },
    ],
    test: TEST,
    title: 'waits for a send that is under way, which ends where it began',
  },
  {
    name: 'adoption: consumers not waited for',
    edits: [{ file: CALL, find: 'const behind = await lag()', replace: 'await lag()\n    const behind = 0n' }],
    test: TEST,
    title: 'nothing goes to the topic before the consumers have caught up',
  },
  {
    name: 'adoption: a relay that starts meanwhile sends',
    edits: [
      { file: DESTINATIONS, find: 'if (recorded.adoption !== null) {', replace: 'if (recorded.partitionCount < 0) {' },
      { file: DESTINATIONS, find: 'if (restsFor(topic) !== null) return null', replace: '' },
      { file: DESTINATIONS, find: '...unknown, ...adopting, ...busy', replace: '...unknown, ...busy' },
    ],
    test: TEST,
    title: 'a relay that starts meanwhile rests too, and is waited for',
  },
  {
    name: 'adoption: a frozen worker keeps its lanes',
    edits: [
      {
        file: LEASES,
        find: '        set owner = null,\n            crashes',
        replace: '        set owner = owner,\n            crashes',
      },
    ],
    test: TEST,
    title: 'the lanes of a worker that was frozen in the middle of a send are lost to it',
  },
  {
    name: 'adoption: what is marked after the last look not waited for',
    edits: [
      {
        file: CALL,
        find: 'if ((await freeVanishedLanes(trx)) > 0) return false',
        replace: 'await freeVanishedLanes(trx)',
      },
    ],
    test: TEST,
    title: 'what a worker marks after its lease has ended is seen by the consumers before the count changes',
  },
  {
    name: 'adoption: a rest that is over is taken up again',
    edits: [
      {
        file: 'src/messaging/relay/topic-queries.ts',
        find: '        and adoption = :adoption\n        and $',
        replace: '        and adoption = :adoption\n         or false and $',
      },
    ],
    test: TEST,
    title: 'a rest that has ended is not taken up again',
  },
  {
    name: 'adoption: skips look at the new place alone',
    edits: [
      {
        file: DESTINATIONS,
        find: 'const counts = this.#topicNamed(where.topic).earlierCounts',
        replace: 'const counts: readonly number[] = []',
      },
    ],
    test: TEST,
    title: 'an event to be skipped counts as published when it lies where the old count had put it',
  },
]
