"""Administration: the names of ``azure.servicebus.management``."""

from kafkabus._core.entity_properties import (
    AccessRights,
    ApiVersion,
    AuthorizationRule,
    EntityAvailabilityStatus,
    EntityStatus,
    LogUsage,
    MessageCountDetails,
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
from kafkabus._core.message_lock import MessageLock
from kafkabus._core.rule_properties import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from kafkabus._sync.admin.queues import ServiceBusAdministrationClient
from kafkabus_mapping.entities import RetryPolicy

__all__ = [
    "AccessRights",
    "ApiVersion",
    "AuthorizationRule",
    "CorrelationRuleFilter",
    "EntityAvailabilityStatus",
    "EntityStatus",
    "FalseRuleFilter",
    "LogUsage",
    "MessageCountDetails",
    "MessageLock",
    "MessagingSku",
    "NamespaceProperties",
    "NamespaceType",
    "PartitionRuntimeProperties",
    "QueueProperties",
    "QueueRuntimeProperties",
    "RetryPolicy",
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
