"""The operations of the administration on a namespace, with descriptions as elements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TypeVar
from xml.etree.ElementTree import Element

from kafkabus._core.entity_properties import EntityProperties, QueueProperties, TopicProperties
from kafkabus._core.exceptions import MessagingEntityNotFoundError
from kafkabus._core.rule_properties import DEFAULT_RULE, RuleProperties
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.gateway.administration.atom import DocumentError, Entry, as_read, children, local_name
from kafkabus.gateway.administration.descriptions import (
    KINDS,
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    Kind,
    RuntimeProperties,
    describe_namespace,
    kind_of,
)
from kafkabus.gateway.administration.failures import RefusedError
from kafkabus.gateway.administration.resources import (
    EntityResource,
    Namespace,
    Queues,
    Resource,
    RuleList,
    RuleResource,
    SubscriptionResource,
    Subscriptions,
    TopicList,
    path_of,
)
from kafkabus.gateway.administration.rules import RULE, describe_rule, read_rule, reads_alike

T = TypeVar("T")

AT_ONCE = 8
"""How many entities of a page are counted at a time."""
OWN_SETTINGS = ("retry_policy", "settled_retention", "size_in_bytes", "unmatched_to")
"""Settings that descriptions do not have: an update leaves them as they are."""


class NamespaceAdministration:
    """The administration of a namespace.

    Args:
        client: The administration client of the namespace.
        url: Returns the address of a path.
    """

    def __init__(self, client: ServiceBusAdministrationClient, url: Callable[[str], str]) -> None:
        self._client = client
        self._url = url

    async def get(self, resource: Resource) -> Entry:
        """Return an entity, a rule, or the namespace.

        Raises:
            MessagingEntityNotFoundError: There is none.
            InvalidOperationError: The name breaks a rule.
            RefusedError: The resource is a list.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        match resource:
            case Namespace():
                return await self._namespace()
            case EntityResource(name):
                return await self._entry(await self._queue_or_topic(name))
            case SubscriptionResource(topic, name):
                return await self._entry(await self._client.get_subscription(topic, name), topic)
            case RuleResource(topic, subscription, name):
                return self._rule_entry(resource, await self._client.get_rule(topic, subscription, name))
            case _:
                raise RefusedError(405, f"{path_of(resource)} is a list")

    async def list(
        self, resource: Queues | TopicList | Subscriptions | RuleList, skip: int, top: int
    ) -> tuple[Sequence[Entry], bool]:
        """Return some entries of a list, and whether there are more.

        Args:
            resource: The list.
            skip: How many entries to leave out.
            top: How many entries to return at most.

        Raises:
            MessagingEntityNotFoundError: The topic or the subscription does not exist.
            InvalidOperationError: A name breaks a rule.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if isinstance(resource, RuleList):
            rules, more = await _page(self._client.list_rules(resource.topic, resource.subscription), skip, top)
            return [
                self._rule_entry(RuleResource(resource.topic, resource.subscription, rule.name), rule) for rule in rules
            ], more
        listed: AsyncIterator[EntityProperties]
        match resource:
            case Queues():
                listed, topic = self._client.list_queues(), ""
            case TopicList():
                listed, topic = self._client.list_topics(), ""
            case Subscriptions(topic):
                listed = self._client.list_subscriptions(topic)
        turn = asyncio.Semaphore(AT_ONCE)

        async def count_entry(properties: EntityProperties) -> Entry | None:
            async with turn:
                try:
                    return await self._entry(properties, topic)
                except MessagingEntityNotFoundError:
                    return None  # It was deleted since it was listed.

        page, more = await _page(listed, skip, top)
        entries = await asyncio.gather(*map(count_entry, page))
        return [entry for entry in entries if entry is not None], more

    async def create(self, resource: Resource, described: Element) -> Entry:
        """Create an entity or a rule as it is described, and return it.

        Raises:
            MessagingEntityAlreadyExistsError: There is one already.
            MessagingEntityNotFoundError: The topic or the subscription does not exist, or a destination of messages.
            InvalidOperationError: A name or a setting breaks a rule.
            DocumentError: The description is malformed, or not of such a resource.
            ServiceBusQuotaExceededError: There are as many as there may be.
            RefusedError: The resource is a list or the namespace.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        match resource:
            case EntityResource(name):
                kind = _kind_in(described, QUEUE, TOPIC)
                settings = kind.settings_in(described)
                create = self._client.create_queue if kind is QUEUE else self._client.create_topic
                made: EntityProperties = await create(name, **settings)
                return await self._entry(made)
            case SubscriptionResource(topic, name):
                settings = _kind_in(described, SUBSCRIPTION).settings_in(described)
                rule = children(described).get("DefaultRuleDescription")
                default = None if rule is None else read_rule(rule, DEFAULT_RULE, _now())
                made = await self._client.create_subscription(topic, name, **settings, default_rule=default)
                return await self._entry(made, topic)
            case RuleResource(topic, subscription, name):
                given = _rule_in(described, name)
                rule_made = await self._client.create_rule(
                    topic, subscription, name, filter=given.filter, action=given.action
                )
                return self._rule_entry(resource, rule_made)
            case _:
                raise RefusedError(405, f"{path_of(resource)} cannot be created")

    async def update(self, resource: Resource, described: Element) -> Entry:
        """Change an entity or a rule to what is described, and return it.

        A setting that the description leaves out gets its default, unless it is fixed or descriptions do not have it.

        Raises:
            MessagingEntityNotFoundError: There is none, or no destination of messages.
            InvalidOperationError: A setting breaks a rule, or is fixed.
            DocumentError: The description is malformed, or not of such a resource.
            RefusedError: The resource is a list or the namespace.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        match resource:
            case EntityResource(name):
                if _kind_in(described, QUEUE, TOPIC) is QUEUE:
                    queue = await self._client.get_queue(name)
                    await self._client.update_queue(_merge_settings(queue, QUEUE.settings_in(described)))
                else:
                    topic_before = await self._client.get_topic(name)
                    await self._client.update_topic(_merge_settings(topic_before, TOPIC.settings_in(described)))
            case SubscriptionResource(topic, name):
                settings = _kind_in(described, SUBSCRIPTION).settings_in(described)
                subscription_before = await self._client.get_subscription(topic, name)
                await self._client.update_subscription(topic, _merge_settings(subscription_before, settings))
            case RuleResource(topic, subscription, name):
                known, wanted = await self._client.get_rule(topic, subscription, name), _rule_in(described, name)
                # A client that writes back what it has read changes nothing, although documents do not hold each character.
                kept_filter = known.filter if reads_alike(known.filter, wanted.filter) else wanted.filter
                kept_action = known.action if reads_alike(known.action, wanted.action) else wanted.action
                await self._client.update_rule(
                    topic, subscription, wanted, name=name, filter=kept_filter, action=kept_action
                )
            case _:
                raise RefusedError(405, f"{path_of(resource)} cannot be updated")
        return await self.get(resource)

    async def delete(self, resource: Resource) -> None:
        """Delete an entity or a rule.

        Raises:
            MessagingEntityNotFoundError: There is none.
            InvalidOperationError: The name breaks a rule.
            RefusedError: The resource is a list or the namespace.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        match resource:
            case EntityResource(name):
                if isinstance(await self._queue_or_topic(name), QueueProperties):
                    await self._client.delete_queue(name)
                else:
                    await self._client.delete_topic(name)
            case SubscriptionResource(topic, name):
                await self._client.delete_subscription(topic, name)
            case RuleResource(topic, subscription, name):
                await self._client.delete_rule(topic, subscription, name)
            case _:
                raise RefusedError(405, f"{path_of(resource)} cannot be deleted")

    async def _queue_or_topic(self, name: str) -> QueueProperties | TopicProperties:
        try:
            return await self._client.get_queue(name)
        except MessagingEntityNotFoundError:
            pass
        try:
            return await self._client.get_topic(name)
        except MessagingEntityNotFoundError as error:
            raise _not_found_error(name) from error

    async def _namespace(self) -> Entry:
        properties = await self._client.get_namespace_properties()
        return Entry(
            url=self._url(path_of(Namespace())),
            title=properties.name,
            author=properties.name,
            published=properties.created_at_utc,
            updated=properties.modified_at_utc,
            description=describe_namespace(properties),
        )

    async def _entry(self, properties: EntityProperties, topic: str = "") -> Entry:
        """Return an entity with its counts.

        Args:
            properties: Its settings.
            topic: The name of its topic, if it is a subscription.

        Raises:
            MessagingEntityNotFoundError: It was deleted during the call.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        name, kind = properties.name, kind_of(properties)
        count: Awaitable[RuntimeProperties]
        resource: Resource
        if kind is QUEUE:
            count, resource = self._client.get_queue_runtime_properties(name), EntityResource(name)
        elif kind is TOPIC:
            count, resource = self._client.get_topic_runtime_properties(name), EntityResource(name)
        else:
            resource = SubscriptionResource(topic, name)
            count = self._client.get_subscription_runtime_properties(topic, name)
        counts = await count
        return Entry(
            url=self._url(path_of(resource)),
            title=name,
            author=self._author,
            published=counts.created_at_utc,
            updated=counts.updated_at_utc,
            description=kind.describe(properties, counts),
        )

    def _rule_entry(self, resource: RuleResource, rule: RuleProperties) -> Entry:
        return Entry(
            url=self._url(path_of(resource)),
            title=rule.name,
            author=self._author,
            published=rule.created_at_utc,
            updated=rule.created_at_utc,
            description=describe_rule(rule),
        )

    @property
    def _author(self) -> str:
        return self._client.fully_qualified_namespace.partition(".")[0]


async def _page(listed: AsyncIterator[T], skip: int, top: int) -> tuple[Sequence[T], bool]:
    """Return some of the items that an iterator yields, and whether there are more; ask it for no more than one of these."""
    page: list[T] = []
    number = 0
    async for item in listed:
        if number >= skip + top:
            return page, True
        if number >= skip:
            page.append(item)
        number += 1
    return page, False


def _merge_settings(properties: EntityProperties, settings: Mapping[str, object]) -> dict[str, object]:
    """Return all settings of an entity, those that are not given as None, which is the default."""
    changed = {
        name: value if name == "name" or name in OWN_SETTINGS else settings.get(name)
        for name, value in properties.items()
    }
    before, after = properties["user_metadata"], changed["user_metadata"]
    if isinstance(before, str) and isinstance(after, str) and as_read(before) == as_read(after):
        # A client writes back what it has read, and documents do not hold each character.
        changed["user_metadata"] = before
    return changed


def _kind_in(described: Element, *kinds: Kind) -> Kind:
    kind = KINDS.get(local_name(described))
    if kind is None or kind not in kinds:
        raise DocumentError(
            f"{local_name(described)} does not describe what the path names: "
            f"send {' or '.join(choice.element for choice in kinds)}"
        )
    return kind


def _rule_in(described: Element, name: str) -> RuleProperties:
    if local_name(described) != RULE:
        raise DocumentError(f"{local_name(described)} does not describe what the path names: send {RULE}")
    return read_rule(described, name, _now())


def _not_found_error(name: str) -> MessagingEntityNotFoundError:
    return MessagingEntityNotFoundError(
        f"The messaging entity '{name}' could not be found: create it, or check its name"
    )


def _now() -> datetime:
    return datetime.now(timezone.utc)
