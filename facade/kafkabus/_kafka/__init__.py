"""Access to Kafka for the blocking and the asyncio SDK: client options, topics, delivery reports, errors."""
