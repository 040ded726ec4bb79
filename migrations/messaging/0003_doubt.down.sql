alter table lane_leases
  drop column doubt;
