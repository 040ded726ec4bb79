-- The library's tables: the outbox and its leases on the write side, the inbox on the read side.
-- Unqualified names: they are created in, and found through, the connection's search_path.

create table outbox (
  -- UUIDv7 made at the append; the event's identity on the topic.
  id                uuid        primary key,
  -- Before seq, so that a transaction has its id before it draws a number.
  tx_id             xid8        not null default pg_current_xact_id(),
  -- Append order. Within an aggregate also commit order, since appending locks the aggregate.
  seq               bigint      generated always as identity (cache 1),
  lane              smallint    not null check (lane between 0 and 63),
  -- Java's murmur2 of aggregate_id; lane and partition both derive from it.
  key_hash          integer     not null,
  aggregate_type    text        not null check (aggregate_type <> ''),
  aggregate_id      text        not null check (aggregate_id <> ''),
  aggregate_version bigint,
  event_type        text        not null check (event_type <> ''),
  -- SQL null is a tombstone; JSON null is a value.
  payload           jsonb,
  headers           jsonb       not null default '{}',
  traceparent       text,
  tracestate        text,
  occurred_at       timestamptz not null,
  created_at        timestamptz not null default clock_timestamp(),
  published_at      timestamptz,
  -- Where this event goes if not where the topic rule says.
  topic             text,
  -- Waits behind a refused event of its key.
  held              boolean     not null default false,
  -- Sends counted one by one, in lanes whose owners kept dying.
  attempts          smallint    not null default 0
);

-- Serves the relay's read alone, and holds only what is pending, so it stays
-- small however long published rows are kept.
create index outbox_pending on outbox (lane, seq) where published_at is null and not held;

-- Serves the reading of a held key; empty while nothing is held.
create index outbox_held on outbox (lane, aggregate_type, aggregate_id, seq) where held;

-- A queue table's dead rows are its cost: vacuum early, by count and not by share.
alter table outbox set (
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_insert_scale_factor = 0.1,
  autovacuum_analyze_scale_factor = 0.05
);

-- Who owns a lane. The expiry stands in relay_workers, so that a renewal never
-- waits for the share locks that fenced writes take here.
create table lane_leases (
  lane    smallint primary key check (lane between 0 and 63),
  owner   uuid,
  -- Grows with every change of owner.
  token   bigint   not null default 0,
  -- How often an owner vanished without releasing the lane since it was last clean.
  crashes smallint not null default 0
);

insert into lane_leases (lane)
select generate_series(0, 63);

-- The relay workers alive, on this database's clock.
create table relay_workers (
  owner      uuid        primary key,
  started_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null
);

-- Keys that wait after a refusal, for the relay or for one consumer.
create table held_keys (
  -- 'relay', or the consumer's name.
  holder          text        not null,
  topic           text        not null,
  aggregate_type  text        not null,
  aggregate_id    text        not null,
  lane            smallint,
  state           text        not null check (state in ('backoff', 'parked')),
  attempts        integer     not null default 1,
  next_attempt_at timestamptz not null,
  reason          text        not null,
  -- What an operator asked for; carried out by the lane's owner or by the consumer.
  request         text        check (request in ('resume', 'skip', 'retry_now')),
  held_at         timestamptz not null default clock_timestamp(),
  primary key (holder, topic, aggregate_type, aggregate_id)
);

-- The partition counts that all relays use alike.
create table topics (
  topic           text        primary key,
  partition_count integer     not null check (partition_count > 0),
  recorded_at     timestamptz not null default clock_timestamp()
);

-- The memory of processed events: one row is one effect.
create table processed_events (
  consumer     text        not null,
  event_id     uuid        not null,
  outcome      text        not null default 'processed' check (outcome in ('processed', 'skipped')),
  processed_at timestamptz not null default clock_timestamp(),
  primary key (consumer, event_id)
);

-- How far a consumer's effects have come, kept in the effects' own transactions:
-- a restored database then asks the broker again for what it has forgotten.
create table consumer_offsets (
  consumer    text        not null,
  topic       text        not null,
  partition   integer     not null,
  next_offset bigint      not null,
  updated_at  timestamptz not null default clock_timestamp(),
  primary key (consumer, topic, partition)
);
