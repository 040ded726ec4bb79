alter table held_keys
  drop column event_type,
  drop column event_id;

drop table dead_letters;
