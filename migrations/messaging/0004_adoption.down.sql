alter table relay_workers
  drop column rests_for;

alter table topics
  drop column adoption,
  drop column rests_until,
  drop column earlier_counts;
