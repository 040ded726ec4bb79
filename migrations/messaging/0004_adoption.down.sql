alter table relay_workers
  drop column resting;

alter table topics
  drop column adoption,
  drop column rests_until,
  drop column earlier_counts;
