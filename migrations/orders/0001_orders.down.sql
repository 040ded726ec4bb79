drop table customer_summary;
drop table order_events;
drop table orders;
