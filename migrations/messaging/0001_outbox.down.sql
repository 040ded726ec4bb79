drop table consumer_offsets;
drop table processed_events;
drop table topics;
drop table held_keys;
drop table relay_workers;
drop table lane_leases;
drop table outbox;
