"""The core of the contract on several versions of Kafka and of Redis: ``make test-matrix``."""
