-- The example domain: orders, what happened to them, and a read model of them.

create table orders (
  -- UUIDv7, so the primary key also lists orders by age.
  id            uuid        primary key,
  version       integer     not null check (version > 0),
  phase         text        not null check (phase in ('placed', 'shipped', 'cancelled')),
  customer_id   text        not null check (length(customer_id) between 1 and 64),
  items         jsonb       not null check (jsonb_typeof(items) = 'array' and jsonb_array_length(items) between 1 and 100),
  total_cents   integer     not null check (total_cents >= 0),
  placed_at     timestamptz not null,
  shipped_at    timestamptz check ((shipped_at is not null) = (phase = 'shipped')),
  cancelled_at  timestamptz check ((cancelled_at is not null) = (phase = 'cancelled')),
  cancel_reason text        check ((cancel_reason is not null) = (phase = 'cancelled'))
);

-- What happened to each order. Stays when the outbox forgets what it has published.
create table order_events (
  order_id    uuid        not null references orders,
  version     integer     not null check (version > 0),
  -- The event's id in the outbox and on the topic.
  event_id    uuid        not null unique,
  event_type  text        not null check (event_type <> ''),
  occurred_at timestamptz not null,
  primary key (order_id, version)
);

-- The read model that the consumer keeps. No reference to orders: it could live in another database.
create table customer_summary (
  customer_id           text        primary key,
  placed_count          integer     not null default 0 check (placed_count >= 0),
  placed_total_cents    bigint      not null default 0 check (placed_total_cents >= 0),
  shipped_count         integer     not null default 0 check (shipped_count >= 0),
  shipped_total_cents   bigint      not null default 0 check (shipped_total_cents >= 0),
  cancelled_count       integer     not null default 0 check (cancelled_count >= 0),
  cancelled_total_cents bigint      not null default 0 check (cancelled_total_cents >= 0),
  updated_at            timestamptz not null default clock_timestamp()
);
