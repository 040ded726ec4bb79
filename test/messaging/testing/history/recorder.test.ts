import { appendFile, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { readHistory, recordHistory } from '../../../../src/messaging/testing/history/recorder.ts'

async function historyFolder() {
  const path = await mkdtemp(join(tmpdir(), 'history-'))
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) }
}

test('reads back what several actors said, merged by time', async () => {
  await using folder = await historyFolder()
  const [one, two] = [join(folder.path, 'one.jsonl'), join(folder.path, 'two.jsonl')]
  using first = recordHistory(one)
  using second = recordHistory(two)

  const placing = first.invoke('client-1', 'placeOrder', { aggregateId: 'o1' })
  const killing = second.invoke('nemesis', 'kill relay')
  placing.ok({ eventIds: ['e1'] })
  killing.info()

  const history = await readHistory([one, two])
  expect(history.map(({ actor, kind }) => [actor, kind])).toEqual([
    ['client-1', 'invoke'],
    ['nemesis', 'invoke'],
    ['client-1', 'ok'],
    ['nemesis', 'info'],
  ])
  expect(history[2]).toMatchObject({ operation: placing.operation, aggregateId: 'o1', eventIds: ['e1'] })
})

test('leaves out a last line that a kill cut short', async () => {
  await using folder = await historyFolder()
  const path = join(folder.path, 'cut.jsonl')
  using recorder = recordHistory(path)
  recorder.invoke('client-1', 'placeOrder')
  await appendFile(path, '{"actor":"client-1","at":17')

  expect(await readHistory([path])).toHaveLength(1)
})
