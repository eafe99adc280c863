"""The gateway: Azure's SDKs connect to it, over AMQP 1.0 and HTTP, as they connect to Service Bus."""
