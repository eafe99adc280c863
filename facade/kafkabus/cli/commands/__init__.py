"""The commands, a module for each group; what they need of Kafka and Redis they import when they run."""
