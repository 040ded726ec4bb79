import { expect, test } from '@jest/globals'
import { OffsetCommitter, type SendCommit } from '../../../src/messaging/kafka/offset-committer.ts'

const kept = { topic: 't', partition: 0 }
const lost = { topic: 't', partition: 1 }

test('a commit that failed while its partition went to another member is not repeated for that', async () => {
  const commits: Parameters<SendCommit>[0][] = []
  const first = Promise.withResolvers<void>()
  const committer = new OffsetCommitter(async (offsets) => {
    commits.push(offsets)
    if (commits.length === 1) await first.promise
  })
  // The first is on its way at once, the second waits behind it.
  committer.finished(lost, 70n)
  committer.finished(kept, 7n)
  const sent = committer.flush()

  committer.keepOnly(({ partition }) => partition === kept.partition)
  first.reject(new Error('REBALANCE_IN_PROGRESS'))
  await sent
  await committer.flush()

  expect(commits.slice(1).flat()).toEqual([{ ...kept, offset: '7' }])
})
