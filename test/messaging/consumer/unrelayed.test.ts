/** Dead letters in a database on which no relay runs. */
import { expect, test } from '@jest/globals'
import type { Logger } from '../../../src/messaging/lifecycle/logger.ts'
import { silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import { eventually } from '../../../src/messaging/testing/contract-harness.ts'
import { recordOf } from './scripted-subscriber.ts'
import { createSetting, joinSetting } from './setting.ts'

const refuse = async () => {
  throw new RangeError('refused')
}

const hasUnrelayed = ({ problems }: { readonly problems: readonly string[] }) =>
  problems.some((problem) => problem.includes('no relay runs on this database'))

test('a consumer says that its dead letters wait where no relay runs, until one does', async () => {
  const said: unknown[] = []
  const logger: Logger = { ...silentLogger, warn: (_fields, text) => said.push(text) }
  await using setting = await createSetting(refuse, { maxAttempts: 1 })
  await setting.subscriber.deliverAll([recordOf(0, { key: 'a' })])
  await setting.db.raw(`update outbox set created_at = created_at - interval '2 minutes'`)

  await using later = await joinSetting(setting, refuse, { logger })
  await later.subscriber.deliver([])
  await eventually('the problem', () => hasUnrelayed(later.consumer.status()))
  expect(said).toContain('Dead letters wait to be published, and no relay runs on this database')

  await setting.db.raw(
    `insert into relay_workers (owner, expires_at) values (gen_random_uuid(), clock_timestamp() + interval '1 hour')`,
  )
  await eventually('its end', () => !hasUnrelayed(later.consumer.status()))
})
