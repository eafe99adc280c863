"""All that touches Kafka: producing, reading ahead, reading by offset, topics."""
