"""Service Bus's nodes over AMQP: claims, senders, receivers, management, transactions."""
