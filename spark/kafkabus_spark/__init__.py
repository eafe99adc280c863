"""Read, write and repair kafkabus entities with Spark."""
