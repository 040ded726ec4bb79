-- Serves the counting of held and of parked keys by the gauges.
create index held_keys_state on held_keys (state, held_at);
