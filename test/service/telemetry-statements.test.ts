import { expect, test } from '@jest/globals'
import { describeStatement } from '../../src/service/telemetry-statements.ts'

test.each([
  ['insert into outbox (id) values (:id)', 'insert', 'outbox'],
  ['insert into orders (id) values (:id) on conflict (id) do update set total = 1', 'insert', 'orders'],
  [
    'with held as (select lane from lane_leases for update)\nupdate outbox set published_at = now() from held',
    'update',
    'outbox',
  ],
  ['with gone as (delete from outbox where seq < 5 returning 1) select count(*) from gone', 'delete', 'outbox'],
  ['select id\n  from orders\n where id = :id\n   for update skip locked', 'select', 'orders'],
  ['select e.id from unnest(:lanes) as l cross join lateral (select id from outbox) as e', 'select', 'outbox'],
  ['select pg_advisory_xact_lock(k) from unnest(:keys) as k', 'select', null],
  ['-- why\nSELECT 1', 'select', null],
  ['listen outbox_wake', 'listen', null],
])('names %j as %s of %s', (sql, operation, table) => {
  expect(describeStatement(sql)).toEqual({ operation, table })
})
