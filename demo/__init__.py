"""The demo: a day of flights through partitioned queues, on one machine."""
