"""The rules of kafkabus: entities, names, numbers, the message codec and filters, without I/O."""
