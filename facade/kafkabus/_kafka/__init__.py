"""What both halves share of Kafka: options of its clients, topics, delivery reports, errors."""
