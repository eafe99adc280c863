"""AMQP messages with any body, header, footer and annotations: the names of ``azure.servicebus.amqp``."""

from kafkabus._core.amqp_message import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)

__all__ = ["AmqpAnnotatedMessage", "AmqpMessageBodyType", "AmqpMessageHeader", "AmqpMessageProperties"]
