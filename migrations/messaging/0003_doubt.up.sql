-- Up to which `seq` an event of the lane may be on its topic without anybody
-- knowing: its sender vanished, or never learned the outcome. Never falls.
alter table lane_leases
  add column doubt bigint not null default 0;

-- Nobody knows it of what was appended before.
update lane_leases
   set doubt = coalesce((select last_value from outbox_seq_seq where is_called), 0);
