import { expect, test } from '@jest/globals'
import type { BrokerInside, ClusterInside } from '../../../src/messaging/kafka/inside.ts'
import { MemberIds } from '../../../src/messaging/kafka/one-member.ts'

const JOIN_GROUP = 11
const group = { groupId: 'summary' }

/** A coordinator that notes what it is asked, and answers a join when a test lets it. */
function createCluster() {
  const asked: string[] = []
  const answers: PromiseWithResolvers<unknown>[] = []
  const broker = {
    joinGroup: ({ memberId }: { memberId: string }) => {
      asked.push(`join ${memberId}`)
      const answer = Promise.withResolvers<unknown>()
      answers.push(answer)
      return answer.promise
    },
    syncGroup: async () => asked.push('sync'),
    leaveGroup: async ({ memberId }: { memberId: string }) => asked.push(`leave ${memberId}`),
    isConnected: () => true,
  } as unknown as BrokerInside
  const cluster = { findGroupCoordinator: async () => broker } as unknown as ClusterInside
  return { cluster, asked, answers }
}

test('joins that overlap are one, and so are syncs: the coordinator would answer the last alone', async () => {
  const { cluster, asked, answers } = createCluster()
  new MemberIds().guard(cluster)
  const coordinator = await cluster.findGroupCoordinator(group)
  const again = await cluster.findGroupCoordinator(group)

  const joins = [coordinator, again, coordinator].map((each) => each.joinGroup({ ...group, memberId: '' }))
  await new Promise(setImmediate)
  answers[0]?.resolve({ memberId: 'one' })

  expect(await Promise.all(joins)).toEqual([{ memberId: 'one' }, { memberId: 'one' }, { memberId: 'one' }])
  await Promise.all([coordinator.syncGroup({}), again.syncGroup({})])
  expect(asked).toEqual(['join ', 'sync'])
  expect(coordinator.isConnected()).toBe(true)
})

test('whatever joins takes the ids before out of the group, also those of joins that came to nothing', async () => {
  const ids = new MemberIds()
  const before = createCluster()
  ids.guard(before.cluster)
  // The coordinator has given an id, and the connection died before it answered the join with that.
  ids.watch.sent(JOIN_GROUP, Promise.reject(Object.assign(new Error('join with it'), { memberId: 'lost' })))
  ids.watch.sent(JOIN_GROUP, Promise.resolve({ memberId: 'kept' }))
  ids.watch.sent(JOIN_GROUP, Promise.reject(new Error('cut off')))
  await new Promise(setImmediate)

  const coordinator = await before.cluster.findGroupCoordinator(group)
  const joined = coordinator.joinGroup({ ...group, memberId: 'kept' })
  await new Promise(setImmediate)
  before.answers[0]?.resolve({ memberId: 'kept' })
  await joined
  expect(before.asked).toEqual(['leave lost', 'join kept'])

  const after = createCluster()
  ids.guard(after.cluster)
  void (await after.cluster.findGroupCoordinator(group)).joinGroup({ ...group, memberId: '' })
  await new Promise(setImmediate)
  expect(after.asked).toEqual(['leave kept', 'join '])
})
