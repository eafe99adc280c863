# py4j ships no types; kafkabus_spark catches the one error that carries Java's exceptions.
