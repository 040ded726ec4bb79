-- While relays go over to another number of partitions, nothing is sent to the
-- topic: for as long as whoever has asked for it extends the rest.
alter table topics
  add column adoption       uuid,
  add column rests_until    timestamptz,
  -- Counts of before, for records that were sent under them.
  add column earlier_counts integer[] not null default '{}';

-- The adoptions for which a worker is at rest: nothing of it is on its way to those topics.
alter table relay_workers
  add column rests_for uuid[] not null default '{}';
