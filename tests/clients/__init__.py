"""Programs with Azure's unmodified SDKs, which check kafkabus's gateway."""
