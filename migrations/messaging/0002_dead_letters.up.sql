-- Events given up after their last attempt, and those that wait behind them.
create table dead_letters (
  -- Order of arrival; within a key the order in which its events are redriven.
  seq            bigint      generated always as identity (cache 1) primary key,
  -- 'relay', or the consumer's name.
  holder         text        not null,
  state          text        not null check (state in ('dead', 'waiting', 'redriven', 'skipped')),
  -- Null for a record that is not one of ours: then topic, partition and offset identify it.
  event_id       uuid,
  event_type     text,
  topic          text        not null,
  aggregate_type text        not null,
  aggregate_id   text        not null,
  -- The record as it was read. Null for the relay, whose event stays in outbox.
  partition      integer,
  record_offset  bigint,
  record_key     bytea,
  record_value   bytea,
  -- json and not jsonb: headers may hold characters that jsonb refuses.
  record_headers json,
  recorded_at    timestamptz,
  -- A code, never a message: messages hold values.
  reason         text,
  attempts       integer     not null default 0,
  created_at     timestamptz not null default clock_timestamp(),
  settled_at     timestamptz,
  check ((event_id is not null) or (partition is not null and record_offset is not null)),
  check ((settled_at is not null) = (state in ('redriven', 'skipped')))
);

-- Serve the setting aside: an event, or a foreign record, is set aside once.
create unique index dead_letters_event on dead_letters (holder, event_id) where event_id is not null;
create unique index dead_letters_record on dead_letters (holder, topic, partition, record_offset) where event_id is null;

-- Serves the redriving of a key in order, and the list of what is open.
create index dead_letters_open on dead_letters (holder, topic, aggregate_type, aggregate_id, seq)
 where state in ('dead', 'waiting');

-- Which event a key is held by; unknown for rows of before.
alter table held_keys
  add column event_id   uuid,
  add column event_type text;
