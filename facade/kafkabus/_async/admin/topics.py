"""Administration of topics, their subscriptions, and the subscriptions' rules."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone

from pydantic import ValidationError

from kafkabus._async.admin.base import check_name, label_of, obey, reason_of, validate
from kafkabus._async.admin.sessions import SessionAdministration
from kafkabus._async.compat import guard
from kafkabus._core.entity_properties import (
    AuthorizationRule,
    LogUsage,
    PartitionRuntimeProperties,
    SubscriptionProperties,
    SubscriptionRuntimeProperties,
    TopicProperties,
    TopicRuntimeProperties,
    change_fields,
)
from kafkabus._core.exceptions import (
    InvalidOperationError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    NamespaceFormatError,
    OperationTimeoutError,
    ServiceBusQuotaExceededError,
)
from kafkabus._core.rule_properties import (
    DEFAULT_RULE,
    RULE_FIELDS,
    RuleFilter,
    RuleProperties,
    SqlRuleAction,
    TrueRuleFilter,
    action_description,
    filter_description,
    rule_properties,
)
from kafkabus_mapping.entities import (
    EntityStatus,
    RetryPolicy,
    SubscriptionDescription,
    TopicDescription,
)
from kafkabus_mapping.error_text import ErrorText, Term
from kafkabus_mapping.filters.rules import CorrelationFilterDescription, RuleDescription, compile_rules, has_decimals
from kafkabus_mapping.formats import FIRST, needs_latest
from kafkabus_mapping.names import UNMATCHED, EntityPath, check_entity, check_part
from kafkabus_mapping.names import subscription_name as subscription_path
from kafkabus_mapping.names import topic_name as log_name

MAX_SUBSCRIPTIONS = 2_000
"""Subscriptions of a topic, as on the service."""
MAX_RULES = 2_000
"""Rules of a subscription, as on the service."""


class TopicAdministration(SessionAdministration):
    """Administers topics, subscriptions and rules."""

    @guard
    async def create_topic(
        self,
        topic_name: str,
        *,
        default_message_time_to_live: timedelta | str | None = None,
        max_size_in_megabytes: int | None = None,
        requires_duplicate_detection: bool | None = None,
        duplicate_detection_history_time_window: timedelta | str | None = None,
        enable_batched_operations: bool | None = None,
        size_in_bytes: int | None = None,
        filtering_messages_before_publishing: bool | None = None,
        authorization_rules: Sequence[AuthorizationRule] | None = None,
        support_ordering: bool | None = None,
        auto_delete_on_idle: timedelta | str | None = None,
        enable_partitioning: bool | None = None,
        enable_express: bool | None = None,
        user_metadata: str | None = None,
        max_message_size_in_kilobytes: int | None = None,
        status: EntityStatus | str | None = None,
        settled_retention: timedelta | str | None = None,
        unmatched_to: str | None = None,
    ) -> TopicProperties:
        """Create a topic: a Kafka topic with one partition per entity partition.

        No receiver gets messages that were sent before the topic has a subscription, unless ``unmatched_to`` is set. Durations
        are timedeltas or ISO 8601 texts such as ``PT30S``.

        Args:
            topic_name: Up to 260 characters.
            default_message_time_to_live: At least 1 s, for messages that bring none or a longer one; default for ever.
            max_size_in_megabytes: Of one partition; see ``create_queue``.
            requires_duplicate_detection: Whether only the first of several messages with the same id is delivered; see
                ``create_queue``.
            duplicate_detection_history_time_window: 20 s to 7 days, default 10 minutes.
            enable_batched_operations: Kept for compatibility; operations are always batched.
            size_in_bytes: Kept for compatibility.
            filtering_messages_before_publishing: Kept for compatibility.
            authorization_rules: Carried, not checked.
            support_ordering: Kept for compatibility: the order within a partition always holds.
            auto_delete_on_idle: After how long without use the topic is deleted: at least 5 minutes, default never.
            enable_partitioning: 16 partitions instead of one; see ``create_queue``. Fixed from now on.
            enable_express: Kept for compatibility.
            user_metadata: Up to 1,024 characters.
            max_message_size_in_kilobytes: The tier's: 256, in Premium 1,024.
            status: Which operations it takes; default ``Active``.
            settled_retention: How long records stay in Kafka that all subscriptions have settled; kafkabus's own, default one
                day.
            unmatched_to: Name or address of a queue or topic: messages move on to it that no subscription wants. A disabled
                subscription's rules count. kafkabus's own, default none.

        Raises:
            MessagingEntityNotFoundError: There is no entity of the name ``unmatched_to``.
            MessagingEntityAlreadyExistsError: There is an entity of that name.
            InvalidOperationError: A setting is out of its bounds, the namespace is in the Basic tier, or messages would come
                back from ``unmatched_to``.
            NamespaceFormatError: ``unmatched_to`` is given, and the namespace's format is 1; nothing was created.
            ServiceBusQuotaExceededError: The namespace holds as many entities as it may.
            ValueError: The name breaks a rule.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        given: dict[str, object] = {
            "default_message_time_to_live": default_message_time_to_live,
            "max_size_in_megabytes": max_size_in_megabytes,
            "requires_duplicate_detection": requires_duplicate_detection,
            "duplicate_detection_history_time_window": duplicate_detection_history_time_window,
            "enable_batched_operations": enable_batched_operations,
            "size_in_bytes": size_in_bytes,
            "filtering_messages_before_publishing": filtering_messages_before_publishing,
            "authorization_rules": authorization_rules,
            "support_ordering": support_ordering,
            "auto_delete_on_idle": auto_delete_on_idle,
            "enable_express": enable_express,
            "user_metadata": user_metadata,
            "max_message_size_in_kilobytes": max_message_size_in_kilobytes,
            "status": status,
            "settled_retention": settled_retention,
            "unmatched_to": unmatched_to,
        }
        check_name(check_entity, topic_name)
        await self._resolve_destinations(given, to_others_than=topic_name)
        description = await self._create_entity(TopicDescription, topic_name, enable_partitioning, given)
        if description.unmatched_to is not None:
            await self._connections().maintenance.lifecycle.share(description)
        return await self._properties(TopicProperties, description)

    @guard
    async def update_topic(self, topic: TopicProperties | Mapping[str, object], **settings: object) -> None:
        """Change a topic's settings. Clients apply them within 5 seconds.

        Args:
            topic: All settings, as ``get_topic`` returns them, some of them changed.
            **settings: Settings that override those in ``topic``.

        Raises:
            TypeError: ``topic`` does not hold a topic's properties, or lacks some.
            InvalidOperationError: A setting is unknown, out of its bounds, or fixed at creation; or messages would come back
                from ``unmatched_to``.
            MessagingEntityNotFoundError: There is no such topic, or no entity of the name ``unmatched_to``.
            NamespaceFormatError: ``unmatched_to`` is given, and the namespace's format is 1; nothing was changed.
            ValueError: The name breaks a rule.
            OperationTimeoutError: Another client has been changing the topic for a minute, and nothing was changed; or one of
                its subscriptions, to which upkeep then applies the settings that the topic has now.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        name = check_name(check_entity, _name_in("topic", topic, settings))
        context = self._connections()
        async with context.descriptions.lock_for_change(name) as lock:
            description = await self._update(TopicDescription, name, TopicProperties, topic, settings)
            await context.maintenance.lifecycle.read_unmatched(description)
            await lock.check()
            await context.descriptions.put(description)
        try:
            await context.maintenance.lifecycle.share(description)
        except OperationTimeoutError as error:
            raise OperationTimeoutError(
                f"topic {name!r} was changed, and not all of its subscriptions go by that: upkeep sees to it, or call again"
            ) from error

    @guard
    async def get_topic(self, topic_name: str) -> TopicProperties:
        """Return a topic's settings.

        Raises:
            MessagingEntityNotFoundError: There is no such topic.
            ValueError: The name breaks a rule.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        return await self._properties(TopicProperties, await self._topic(topic_name))

    @guard
    async def get_topic_runtime_properties(self, topic_name: str) -> TopicRuntimeProperties:
        """Return a topic's counts.

        Raises:
            MessagingEntityNotFoundError: There is no such topic.
            ValueError: The name breaks a rule.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        return await self._topic_runtime(await self._topic(topic_name))

    @guard
    async def get_topic_log_usage(self, topic_name: str) -> list[LogUsage]:
        """Return how much of a topic's log each of its subscriptions keeps, by name; kafkabus's own.

        Raises:
            MessagingEntityNotFoundError: There is no such topic.
            ValueError: The name breaks a rule.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        description, context = await self._topic(topic_name), self._connections()
        needed = {
            subscription.own_name: [
                await context.maintenance.recovery.first_needed_offset(reader, ledger) for ledger in reader.ledgers
            ]
            for subscription in await context.catalog.subscriptions_of(description)
            for reader in [self._entity(EntityPath(subscription.name), subscription)]
        }
        partitions = range(description.partitions)
        ends = await context.topics.ends(description.topic, partitions)
        starts = await context.topics.starts(description.topic, partitions)
        records = {
            name: [ends[partition] - max(starts[partition], offsets[partition]) for partition in partitions]
            for name, offsets in needed.items()
        }
        most = [max(counts) for counts in zip(*records.values(), strict=True)]
        return [
            LogUsage(
                subscription_name=name,
                records=tuple(counts),
                keeps=tuple(
                    partition for partition in partitions if counts[partition] and counts[partition] == most[partition]
                ),
            )
            for name, counts in records.items()
        ]

    @guard
    async def delete_topic(self, topic_name: str) -> None:
        """Delete a topic, its subscriptions and all their messages.

        Raises:
            MessagingEntityNotFoundError: There is no such topic.
            ValueError: The name breaks a rule.
            OperationTimeoutError: Another client has been changing it for a minute; nothing was changed.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; call again.
        """
        await self._connections().maintenance.lifecycle.delete(await self._topic(topic_name))

    @guard
    async def list_topics(self) -> AsyncIterator[TopicProperties]:
        """Yield all topics, by name.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        every = await self._connections().descriptions.all()
        listed = [description for description in every if isinstance(description, TopicDescription)]
        async for properties in self._list_entities(TopicProperties, listed):  # aio-only
            yield properties  # aio-only
        # blocking: yield from self._list_entities(TopicProperties, listed)

    @guard
    async def list_topics_runtime_properties(self) -> AsyncIterator[TopicRuntimeProperties]:
        """Yield the counts of all topics, by name.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        every = await self._connections().descriptions.all()
        listed = [description for description in every if isinstance(description, TopicDescription)]
        async for counts in self._count_entities(listed, self._topic_runtime):  # aio-only
            yield counts  # aio-only
        # blocking: yield from self._count_entities(listed, self._topic_runtime)

    @guard
    async def create_subscription(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        lock_duration: timedelta | str | None = None,
        requires_session: bool | None = None,
        default_message_time_to_live: timedelta | str | None = None,
        dead_lettering_on_message_expiration: bool | None = None,
        dead_lettering_on_filter_evaluation_exceptions: bool | None = None,
        max_delivery_count: int | None = None,
        enable_batched_operations: bool | None = None,
        forward_to: str | None = None,
        user_metadata: str | None = None,
        forward_dead_lettered_messages_to: str | None = None,
        auto_delete_on_idle: timedelta | str | None = None,
        status: EntityStatus | str | None = None,
        default_rule: RuleProperties | None = None,
        retry_policy: RetryPolicy | Mapping[str, object] | None = None,
    ) -> SubscriptionProperties:
        """Create a subscription: a reader of the topic's log, which begins at the log's end. No message is copied.

        It has one rule, by default ``$Default``, which every message matches.

        Args:
            topic_name: Name of the topic.
            subscription_name: Up to 50 characters.
            lock_duration: Up to 5 minutes, or the namespace's ``longest_lock``; default 1 minute.
            requires_session: Whether its messages are received in sessions; those without a session id are dead-lettered.
            default_message_time_to_live: At least 1 s, default for ever; if the topic's is shorter, the topic's counts.
            dead_lettering_on_message_expiration: Whether messages whose time to live is over are dead-lettered; default False.
            dead_lettering_on_filter_evaluation_exceptions: Whether messages are dead-lettered for which a rule cannot be
                evaluated; default True.
            max_delivery_count: 1 to 2,000, default 10.
            enable_batched_operations: Kept for compatibility; operations are always batched.
            forward_to: Name of a queue or topic, or its address: all messages move on to it.
            user_metadata: Up to 1,024 characters.
            forward_dead_lettered_messages_to: Name or address of a queue or topic: all dead-lettered messages move on to it.
            auto_delete_on_idle: After how long without use the subscription is deleted: at least 5 minutes, default never.
            status: Which operations it takes; default ``Active``.
            default_rule: The rule that it has instead of ``$Default``, from its first message on; kafkabus's own.
            retry_policy: See ``create_queue``.

        Raises:
            MessagingEntityNotFoundError: There is no such topic, or no entity of a name to which messages are to be forwarded.
            MessagingEntityAlreadyExistsError: The topic has a subscription of that name.
            InvalidOperationError: A setting is out of its bounds, or an expression of the rule is malformed.
            NamespaceFormatError: A retry policy is given, and the namespace's format is 1; nothing was created.
            ServiceBusQuotaExceededError: The topic has as many subscriptions as it may.
            ValueError: The name breaks a rule.
            OperationTimeoutError: Another client has been changing it for a minute; nothing was changed.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        name = _changeable(topic_name, subscription_name)
        rule = RuleDescription(name=DEFAULT_RULE, created_at=datetime.now(timezone.utc))
        if default_rule is not None:
            rule_name = check_name(check_part, "rule", default_rule.name)
            rule = described_rule(rule_name, default_rule.filter, default_rule.action, rule.created_at)
        given: dict[str, object] = {
            "lock_duration": lock_duration,
            "requires_session": requires_session,
            "default_message_time_to_live": default_message_time_to_live,
            "dead_lettering_on_message_expiration": dead_lettering_on_message_expiration,
            "dead_lettering_on_filter_evaluation_exceptions": dead_lettering_on_filter_evaluation_exceptions,
            "max_delivery_count": max_delivery_count,
            "enable_batched_operations": enable_batched_operations,
            "forward_to": forward_to,
            "user_metadata": user_metadata,
            "forward_dead_lettered_messages_to": forward_dead_lettered_messages_to,
            "auto_delete_on_idle": auto_delete_on_idle,
            "status": status,
            "retry_policy": retry_policy,
        }
        descriptions = self._connections().descriptions
        async with descriptions.lock_for_change(topic_name) as topics_lock, descriptions.lock_for_change(name) as lock:
            description = await self._new_subscription(topic_name, name, given, rule)
            await topics_lock.check()
            await lock.check()
            await descriptions.put(description)
            description = await self._connections().maintenance.rule_changes.settle(lock, description)
        return await self._properties(SubscriptionProperties, description)

    async def _new_subscription(
        self, topic_name: str, name: str, given: Mapping[str, object], rule: RuleDescription
    ) -> SubscriptionDescription:
        """Create the ledgers of a new subscription; return its description.

        If upkeep looks for messages of the topic that no subscription wants, the rules of this one count from when the
        description shows them, as if they were changed: upkeep may have judged messages since the ledgers began.
        """
        context, settings, path = self._connections(), dict(given), EntityPath(name)
        for which in (path.dead_letter, path.transfer_dead_letter):
            log_name(self._settings.namespace, which)  # Both names may be too long together.
        topic = await self._topic(topic_name)
        if topic.status is EntityStatus.DELETING:
            raise MessagingEntityNotFoundError(f"{label_of(TopicDescription, topic.name)} is being deleted")
        await self._check_free(name)
        await self._resolve_destinations(settings, to_others_than=topic.name)
        if len(await self._subscriptions_of(topic)) >= MAX_SUBSCRIPTIONS:
            raise ServiceBusQuotaExceededError(
                f"topic {topic_name!r} has {MAX_SUBSCRIPTIONS} subscriptions, and no topic has more: delete one"
            )
        self._check_rules([rule])
        now = datetime.now(timezone.utc)
        rule = rule.model_copy(update={"created_at": now})
        later = topic.unmatched_to is not None
        empty = SubscriptionDescription.of_topic(
            topic, name, uid=uuid.uuid4().hex[:12], created_at=now, rules=[] if later else [rule]
        )
        description = validate(SubscriptionDescription, change_fields(empty, settings), "created")
        obey(await self._namespace(), description)
        self._check_format(description)
        offsets = await context.maintenance.recovery.begin_subscription(self._entity(path, description))
        return description.begin_at(offsets).model_copy(update={"changing": (rule,) if later else None})

    @guard
    async def update_subscription(
        self, topic_name: str, subscription: SubscriptionProperties | Mapping[str, object], **settings: object
    ) -> None:
        """Change a subscription's settings. Clients apply them within 5 seconds.

        Args:
            topic_name: Name of the topic.
            subscription: All settings, as ``get_subscription`` returns them, some of them changed.
            **settings: Settings that override those in ``subscription``.

        Raises:
            TypeError: ``subscription`` does not hold a subscription's properties, or lacks some.
            InvalidOperationError: A setting is unknown, out of its bounds, or fixed at creation.
            MessagingEntityNotFoundError: There is no such topic, or subscription.
            NamespaceFormatError: A retry policy is given, and the namespace's format is 1; nothing was changed.
            ValueError: A name breaks a rule.
            OperationTimeoutError: Another client has been changing it for a minute; nothing was changed.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        name = _changeable(topic_name, _name_in("subscription", subscription, settings))
        descriptions = self._connections().descriptions
        async with descriptions.lock_for_change(name) as lock:
            description = await self._update(
                SubscriptionDescription, name, SubscriptionProperties, subscription, settings
            )
            await lock.check()
            await descriptions.put(description)

    @guard
    async def get_subscription(self, topic_name: str, subscription_name: str) -> SubscriptionProperties:
        """Return a subscription's settings.

        Raises:
            MessagingEntityNotFoundError: There is no such topic, or subscription.
            ValueError: A name breaks a rule.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        return await self._properties(SubscriptionProperties, await self._subscription(topic_name, subscription_name))

    @guard
    async def get_subscription_runtime_properties(
        self, topic_name: str, subscription_name: str
    ) -> SubscriptionRuntimeProperties:
        """Return a subscription's counts, summed over its topic's partitions.

        Raises:
            MessagingEntityNotFoundError: There is no such topic, or subscription.
            ValueError: A name breaks a rule.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        return await self._subscription_runtime(await self._subscription(topic_name, subscription_name))

    @guard
    async def delete_subscription(self, topic_name: str, subscription_name: str) -> None:
        """Delete a subscription with its dead-letter queues; the topic's other subscriptions stay as they are.

        Raises:
            MessagingEntityNotFoundError: There is no such topic, or subscription.
            ValueError: A name breaks a rule.
            OperationTimeoutError: Another client has been changing it for a minute; nothing was changed.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; call again.
        """
        _changeable(topic_name, subscription_name)
        await self._connections().maintenance.lifecycle.delete(await self._subscription(topic_name, subscription_name))

    @guard
    async def list_subscriptions(self, topic_name: str) -> AsyncIterator[SubscriptionProperties]:
        """Yield a topic's subscriptions, by name.

        Raises:
            MessagingEntityNotFoundError: There is no such topic.
            ValueError: A name breaks a rule.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        listed = await self._subscriptions_of(await self._topic(topic_name))
        async for properties in self._list_entities(SubscriptionProperties, listed):  # aio-only
            yield properties  # aio-only
        # blocking: yield from self._list_entities(SubscriptionProperties, listed)

    @guard
    async def list_subscriptions_runtime_properties(
        self, topic_name: str
    ) -> AsyncIterator[SubscriptionRuntimeProperties]:
        """Yield the counts of a topic's subscriptions, by name.

        Raises:
            MessagingEntityNotFoundError: There is no such topic.
            ValueError: A name breaks a rule.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        listed = await self._subscriptions_of(await self._topic(topic_name))
        async for counts in self._count_entities(listed, self._subscription_runtime):  # aio-only
            yield counts  # aio-only
        # blocking: yield from self._count_entities(listed, self._subscription_runtime)

    @guard
    async def create_rule(
        self,
        topic_name: str,
        subscription_name: str,
        rule_name: str,
        *,
        filter: RuleFilter = TrueRuleFilter(),  # noqa: B008 - the name and the default of Azure's
        action: SqlRuleAction | None = None,
    ) -> RuleProperties:
        """Give a subscription a rule. It applies to messages that are sent after this returns.

        Args:
            topic_name: Name of the topic.
            subscription_name: Name of the subscription.
            rule_name: Up to 50 characters.
            filter: Which messages the rule is about; default all.
            action: The changes to the copy of a message that the rule makes; by default the rule makes no copy.

        Raises:
            MessagingEntityNotFoundError: There is no such topic, or subscription.
            MessagingEntityAlreadyExistsError: The subscription has a rule of that name.
            InvalidOperationError: An expression is malformed: the message says where, and what was expected there.
            ServiceBusQuotaExceededError: The subscription has as many rules as it may, or its rules are too large.
            ValueError: The name breaks a rule.
            TypeError: The filter or the action has a wrong type.
            OperationTimeoutError: Another client has been changing it for a minute, and nothing was changed; or Kafka or Redis
                took half a minute, and upkeep does the rest.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        check_name(check_part, "rule", rule_name)
        rule = described_rule(rule_name, filter, action, datetime.now(timezone.utc))

        def more(description: SubscriptionDescription) -> Sequence[RuleDescription]:
            if _rule_of(description, rule_name) is not None:
                raise MessagingEntityAlreadyExistsError(
                    f"{label_of(SubscriptionDescription, description.name)} has a rule {rule_name!r} already: update it, or "
                    "choose another name"
                )
            if len(description.rules) >= MAX_RULES:
                raise ServiceBusQuotaExceededError(
                    f"{label_of(SubscriptionDescription, description.name)} has {MAX_RULES} rules, and no subscription has "
                    "more: delete one"
                )
            return [*description.rules, rule]

        await self._change_rules(topic_name, subscription_name, more)
        return rule_properties(rule)

    @guard
    async def get_rule(self, topic_name: str, subscription_name: str, rule_name: str) -> RuleProperties:
        """Return a rule of a subscription.

        Raises:
            MessagingEntityNotFoundError: There is no such topic, subscription, or rule.
            ValueError: The name breaks a rule.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        check_name(check_part, "rule", rule_name)
        return rule_properties(_known_rule(await self._subscription(topic_name, subscription_name), rule_name))

    @guard
    async def update_rule(
        self, topic_name: str, subscription_name: str, rule: RuleProperties | Mapping[str, object], **settings: object
    ) -> None:
        """Change a rule's filter or action, for messages that are sent after this returns.

        Args:
            topic_name: Name of the topic.
            subscription_name: Name of the subscription.
            rule: The rule as ``get_rule`` returns it, changed.
            **settings: Values that override those in ``rule``.

        Raises:
            TypeError: ``rule`` does not hold a rule's properties, or lacks some; or the filter or the action has a wrong type.
            MessagingEntityNotFoundError: There is no such topic, subscription, or rule.
            InvalidOperationError: An expression is malformed, or a setting is unknown.
            ValueError: The name breaks a rule.
            ServiceBusQuotaExceededError: The subscription's rules are too large.
            OperationTimeoutError: Another client has been changing it for a minute, and nothing was changed; or Kafka or Redis
                took half a minute, and upkeep does the rest.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        name = check_name(check_part, "rule", _name_in("rule", rule, settings))
        wanted = {**rule, **settings}
        unknown = wanted.keys() - RULE_FIELDS
        if unknown:
            raise InvalidOperationError(f"there are no settings {sorted(unknown)}: choose from {sorted(RULE_FIELDS)}")
        missing = {"filter", "action"} - wanted.keys()
        if missing:
            raise TypeError(f"settings are missing: {sorted(missing)}; change what get_rule returns, and give that")

        def replace_rule(description: SubscriptionDescription) -> Sequence[RuleDescription]:
            before = _known_rule(description, name)
            after = described_rule(before.name, wanted["filter"], wanted["action"], before.created_at)
            return [after if rule is before else rule for rule in description.rules]

        await self._change_rules(topic_name, subscription_name, replace_rule)

    @guard
    async def delete_rule(self, topic_name: str, subscription_name: str, rule_name: str) -> None:
        """Delete a rule, for messages that are sent after this returns. Without rules a subscription gets no messages.

        Raises:
            MessagingEntityNotFoundError: There is no such topic, subscription, or rule.
            ValueError: The name breaks a rule.
            ServiceBusQuotaExceededError: The subscription's rules are too large.
            OperationTimeoutError: Another client has been changing it for a minute, and nothing was changed; or Kafka or Redis
                took half a minute, and upkeep does the rest.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        check_name(check_part, "rule", rule_name)

        def drop_rule(description: SubscriptionDescription) -> Sequence[RuleDescription]:
            gone = _known_rule(description, rule_name)
            return [rule for rule in description.rules if rule is not gone]

        await self._change_rules(topic_name, subscription_name, drop_rule)

    @guard
    async def list_rules(self, topic_name: str, subscription_name: str) -> AsyncIterator[RuleProperties]:
        """Yield a subscription's rules, ``$Default`` first, then by name.

        Raises:
            MessagingEntityNotFoundError: There is no such topic, or subscription.
            ValueError: A name breaks a rule.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        for rule in (await self._subscription(topic_name, subscription_name)).rules:
            yield rule_properties(rule)

    async def _topic(self, name: str) -> TopicDescription:
        return await self._get_known(TopicDescription, check_name(check_entity, name))

    async def _subscription(self, topic_name: str, name: str) -> SubscriptionDescription:
        full = check_name(subscription_path, topic_name, name)
        await self._topic(topic_name)
        return await self._get_known(SubscriptionDescription, full)

    async def _subscriptions_of(self, topic: TopicDescription) -> list[SubscriptionDescription]:
        """Return the subscriptions that callers have created, by name."""
        every = await self._connections().catalog.subscriptions_of(topic)
        return [subscription for subscription in every if not subscription.is_unmatched]

    async def _change_rules(
        self, topic_name: str, name: str, wanted: Callable[[SubscriptionDescription], Sequence[RuleDescription]]
    ) -> None:
        """Give a subscription other rules, made from those that it has; finish a change that was cut off first."""
        context = self._connections()
        async with context.descriptions.lock_for_change(_changeable(topic_name, name)) as lock:
            description = await context.maintenance.rule_changes.settle(
                lock, await self._subscription(topic_name, name)
            )
            rules = wanted(description)
            self._check_rules(rules)
            await context.maintenance.rule_changes.change(lock, description, rules)

    def _check_rules(self, rules: Sequence[RuleDescription]) -> None:
        """Check that the namespace's format can store rules.

        Raises:
            NamespaceFormatError: It cannot.
        """
        if self._connections().descriptions.written_format == FIRST:
            for rule in filter(has_decimals, rules):
                raise NamespaceFormatError(needs_latest(f"a decimal in rule {rule.name!r}", self._settings.namespace))

    async def _topic_runtime(self, description: TopicDescription) -> TopicRuntimeProperties:
        path, context = EntityPath(description.name), self._connections()
        entity = self._entity(path, description)
        states = await context.ledger_client.states(entity.ledgers)
        subscriptions = await self._subscriptions_of(description)
        rules = [rule for subscription in subscriptions for rule in subscription.rules]
        correlated = sum(isinstance(rule.filter, CorrelationFilterDescription) for rule in rules)
        ends = await context.topics.ends(entity.topic, range(entity.partitions))
        waiting = [0 if state is None else state.scheduled for state in states]
        for reader in await context.catalog.readers_of(entity):
            for partition, state in enumerate(await context.ledger_client.states(reader.ledgers)):
                if state is not None:
                    waiting[partition] = max(waiting[partition], ends[partition] - state.cursor + state.in_flight)
        return TopicRuntimeProperties(
            name=description.name,
            created_at_utc=description.created_at,
            updated_at_utc=description.updated_at,
            accessed_at_utc=await self._access_time(path, description),
            subscription_count=len(subscriptions),
            size_in_bytes=await self._bytes(entity.topic, waiting),
            scheduled_message_count=sum(0 if state is None else state.scheduled for state in states),
            sql_filter_count=len(rules) - correlated,
            correlation_filter_count=correlated,
        )

    async def _subscription_runtime(self, description: SubscriptionDescription) -> SubscriptionRuntimeProperties:
        path = EntityPath(description.name)
        counts = await self._counts(path, description, description.topic, description.topic_id)
        dead = await self._count_dead(path.dead_letter, description)
        undelivered = await self._count_dead(path.transfer_dead_letter, description)
        return SubscriptionRuntimeProperties(
            name=description.own_name,
            created_at_utc=description.created_at,
            updated_at_utc=description.updated_at,
            accessed_at_utc=await self._access_time(path, description),
            total_message_count=sum(counts.active) + sum(counts.moving) + sum(dead) + sum(undelivered),
            active_message_count=sum(counts.active),
            dead_letter_message_count=sum(dead),
            transfer_message_count=sum(counts.moving),
            transfer_dead_letter_message_count=sum(undelivered),
            postponed_message_count=sum(counts.postponed),
            available_session_count=None if counts.sessions is None else counts.sessions.available,
            locked_session_count=None if counts.sessions is None else counts.sessions.locked,
            partitions=tuple(
                PartitionRuntimeProperties(
                    partition=partition,
                    active_message_count=counts.active[partition],
                    dead_letter_message_count=dead[partition],
                    transfer_dead_letter_message_count=undelivered[partition],
                    postponed_message_count=counts.postponed[partition],
                )
                for partition in range(description.partitions)
            ),
        )


def _changeable(topic_name: str, name: str) -> str:
    """Return the full name of a subscription that callers create, change and delete.

    Raises:
        InvalidOperationError: A name breaks a rule, or is that of upkeep's own subscription.
    """
    full = check_name(subscription_path, topic_name, name)
    if name.lower() == UNMATCHED:
        raise InvalidOperationError(
            ErrorText(
                f"{label_of(SubscriptionDescription, full)} is upkeep's, which reads the topic by it: choose another name, or "
                "change ",
                Term("unmatched_to"),
                " of the topic",
            )
        )
    return full


def _name_in(what: str, given: object, settings: Mapping[str, object]) -> str:
    """Return the name among an entity's or a rule's properties.

    Raises:
        TypeError: The properties are no mapping, or the name is no string.
    """
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{type(given).__name__} is no {what}'s properties: change what get_{what} returns, and give that"
        )
    name = settings.get("name", given.get("name"))
    if not isinstance(name, str):
        raise TypeError(f"the {what}'s name is {type(name).__name__}: use str")
    return name


def described_rule(name: str, filter_: object, action: object, created_at: datetime) -> RuleDescription:
    """Return a rule as it is stored, after checking that it can be carried out.

    Raises:
        InvalidOperationError: An expression is malformed, or a parameter has no value.
        TypeError: The filter or the action has a wrong type.
    """
    try:
        rule = RuleDescription(
            name=name, filter=filter_description(filter_), action=action_description(action), created_at=created_at
        )
        compile_rules([rule])
    except ValidationError as error:
        raise InvalidOperationError(ErrorText(f"rule {name!r}: ", reason_of(error)), error=error) from error
    except ValueError as error:
        raise InvalidOperationError(f"rule {name!r}: {error}", error=error) from error
    return rule


def _rule_of(description: SubscriptionDescription, name: str) -> RuleDescription | None:
    return next((rule for rule in description.rules if rule.name.lower() == str(name).lower()), None)


def _known_rule(description: SubscriptionDescription, name: str) -> RuleDescription:
    rule = _rule_of(description, name)
    if rule is None:
        names = ", ".join(repr(known_rule.name) for known_rule in description.rules) or "none"
        raise MessagingEntityNotFoundError(
            f"{label_of(SubscriptionDescription, description.name)} has no rule {name!r}; it has: {names}"
        )
    return rule
