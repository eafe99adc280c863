"""Administration: the names of ``azure.servicebus.management``."""

from kafkabus.management.client import ServiceBusAdministrationClient
from kafkabus.management.models import (
    AccessRights,
    AuthorizationRule,
    EntityAvailabilityStatus,
    EntityStatus,
    LogUsage,
    MessagingSku,
    NamespaceProperties,
    NamespaceType,
    PartitionRuntimeProperties,
    QueueProperties,
    QueueRuntimeProperties,
    SubscriptionProperties,
    SubscriptionRuntimeProperties,
    TopicProperties,
    TopicRuntimeProperties,
)
from kafkabus.management.rules import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

__all__ = [
    "AccessRights",
    "AuthorizationRule",
    "CorrelationRuleFilter",
    "EntityAvailabilityStatus",
    "EntityStatus",
    "FalseRuleFilter",
    "LogUsage",
    "MessagingSku",
    "NamespaceProperties",
    "NamespaceType",
    "PartitionRuntimeProperties",
    "QueueProperties",
    "QueueRuntimeProperties",
    "RuleProperties",
    "ServiceBusAdministrationClient",
    "SqlRuleAction",
    "SqlRuleFilter",
    "SubscriptionProperties",
    "SubscriptionRuntimeProperties",
    "TopicProperties",
    "TopicRuntimeProperties",
    "TrueRuleFilter",
]
