"""A file that describes the entities of a namespace, in the JSON format of Microsoft's emulator, with more settings.

The format is that of the emulator's ``Config.json``
(https://learn.microsoft.com/azure/service-bus-messaging/overview-emulator). In addition an entity may have all settings
that its ``create_…`` method takes, such as ``EnablePartitioning``, and the namespace ``MessagingSku``,
``Partitions`` and ``LongestLock``. ``namespace_export`` writes such a file.

Microsoft's own file has comments, and files that programs write may have a byte order mark, trailing commas, and null in place
of entries that they do not have: all of that is read. Entries without an effect here are named in one warning.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import json5
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_pascal, to_snake
from typing_extensions import Self

from kafkabus._core.rule_properties import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from kafkabus._sync.admin.queues import ServiceBusAdministrationClient
from kafkabus.exceptions import MessagingEntityNotFoundError, ServiceBusCommunicationError, ServiceBusError
from kafkabus_mapping.entities import RetryPolicy
from kafkabus_mapping.error_text import ErrorText, text_of_error
from kafkabus_mapping.names import SUBSCRIPTIONS
from kafkabus_mapping.properties import decode_properties

LOGGER = logging.getLogger("kafkabus")

_DEFAULT_RULE = "$Default"
FORWARDS = frozenset({"forward_to", "forward_dead_lettered_messages_to", "unmatched_to"})
"""Settings that name another entity."""
NOT_IN_FILES = frozenset({"self", "queue_name", "topic_name", "subscription_name", "authorization_rules"})
"""Arguments of the methods that create entities which files do not have."""
_DURATION = TypeAdapter(timedelta)


class NamespaceFileError(ValueError):
    """A file does not describe entities, or the namespace refuses one of them; the message says where, and what to write."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_pascal)


def _policy(written: str, value: JsonValue) -> dict[str, JsonValue]:
    """Return a retry policy as the administration takes it; its kind may have a capital letter, as other words of files.

    Raises:
        ValueError: It breaks a rule of policies.
    """
    if not isinstance(value, dict):
        raise ValueError(f'{written} is {value!r}: write {{"Kind": "Fixed", "Delays": ["PT10S"]}}')
    policy = {
        to_snake(name): item.lower() if name == "Kind" and isinstance(item, str) else item
        for name, item in value.items()
    }
    try:
        RetryPolicy.read(policy)
    except ValueError as error:
        raise ValueError(f"{written}: {error}") from error
    return policy


def _settings_of(create: Callable[..., object]) -> AfterValidator:
    """Return a validator that turns the names of settings into those of a method, and refuses others."""
    known = [name for name in inspect.signature(create).parameters if name not in NOT_IN_FILES]

    def check(given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        settings: dict[str, JsonValue] = {}
        for written, value in given.items():
            name = to_snake(written)
            if name not in known:
                near = [to_pascal(close_match) for close_match in get_close_matches(name, known, n=1)]
                remedy = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(map(to_pascal, known))}"
                raise ValueError(f"there is no setting {written!r}: {remedy}")
            # Microsoft's files have empty texts for no destination.
            if value is not None and not (name in FORWARDS and value == ""):
                settings[name] = _policy(written, value) if name == "retry_policy" else value
        return settings

    return AfterValidator(check)


_Settings = dict[str, JsonValue]


def _none_if_empty(value: Any) -> Any:
    return value or None


def _given_settings(value: Any) -> Any:
    return {} if value is None else value


def _given_list(value: Any) -> Any:
    return [] if value is None else value


_NULL_IS_NO_SETTING = BeforeValidator(_given_settings)
_NULL_IS_EMPTY = BeforeValidator(_given_list)


class _Filter(_Part):
    # For the service, and for programs that write such files; they have no effect.
    compatibility_level: JsonValue = None
    requires_preprocessing: JsonValue = None

    def without_effect(self) -> Iterator[str]:
        """Yield the names of entries that have no effect."""
        for name in ("compatibility_level", "requires_preprocessing"):
            if getattr(self, name) is not None:
                yield to_pascal(name)


def _decoded(given: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return values, tagged ones as those of their types, as the headers of records have them.

    Raises:
        ValueError: A tag or its content is not known.
    """
    return given and {**decode_properties(json.dumps(given))}


_Values = Annotated[dict[str, Any] | None, AfterValidator(_decoded)]
"""Values of parameters or properties, by name; an object is a tagged value of a type that JSON does not have."""


class _SqlExpression(_Filter):
    sql_expression: str
    parameters: _Values = None


class _Correlation(_Filter):
    content_type: str | None = None
    correlation_id: str | None = None
    label: str | None = None
    message_id: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    session_id: str | None = None
    to: str | None = None
    properties: _Values = None


class _RuleSettings(_Part):
    filter_type: Literal["Sql", "Correlation", "True", "False"]
    sql_filter: _SqlExpression | None = None
    correlation_filter: _Correlation | None = None
    action: Annotated[_SqlExpression | None, BeforeValidator(_none_if_empty)] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for kind, given in (("Sql", self.sql_filter), ("Correlation", self.correlation_filter)):
            if (self.filter_type == kind) != (given is not None):
                raise ValueError(f"FilterType {self.filter_type!r} and {kind}Filter: give both, or neither")
        return self

    @property
    def filter(self) -> SqlRuleFilter | CorrelationRuleFilter:
        if self.sql_filter is not None:
            return SqlRuleFilter(self.sql_filter.sql_expression, self.sql_filter.parameters)
        if self.correlation_filter is not None:
            return CorrelationRuleFilter(**self.correlation_filter.model_dump(exclude=set(_Filter.model_fields)))
        return TrueRuleFilter() if self.filter_type == "True" else FalseRuleFilter()

    @property
    def sql_action(self) -> SqlRuleAction | None:
        return None if self.action is None else SqlRuleAction(self.action.sql_expression, self.action.parameters)


class _Rule(_Part):
    name: str
    properties: _RuleSettings


class _Queue(_Part):
    name: str
    properties: Annotated[_Settings, _NULL_IS_NO_SETTING, _settings_of(ServiceBusAdministrationClient.create_queue)] = (
        Field(default_factory=_Settings)
    )


class _Subscription(_Part):
    name: str
    properties: Annotated[
        _Settings, _NULL_IS_NO_SETTING, _settings_of(ServiceBusAdministrationClient.create_subscription)
    ] = Field(default_factory=_Settings)
    rules: Annotated[list[_Rule], _NULL_IS_EMPTY] = Field(default_factory=list[_Rule])
    # Whether a subscription that is created without rules has the rule that every message matches.
    default_rule: bool = True


class _Topic(_Part):
    name: str
    properties: Annotated[_Settings, _NULL_IS_NO_SETTING, _settings_of(ServiceBusAdministrationClient.create_topic)] = (
        Field(default_factory=_Settings)
    )
    subscriptions: Annotated[list[_Subscription], _NULL_IS_EMPTY] = Field(default_factory=list[_Subscription])


class _Namespace(_Part):
    name: str
    messaging_sku: str | None = None
    partitions: int | None = None
    longest_lock: timedelta | None = None
    # Nothing that a file could say of a namespace here; programs write it nevertheless.
    properties: JsonValue = None
    queues: Annotated[list[_Queue], _NULL_IS_EMPTY] = Field(default_factory=list[_Queue])
    topics: Annotated[list[_Topic], _NULL_IS_EMPTY] = Field(default_factory=list[_Topic])


class _UserConfig(_Part):
    namespaces: Annotated[list[_Namespace], Field(min_length=1, max_length=1)]
    # For Microsoft's emulator; kafkabus has other options.
    logging: JsonValue = None


class _Content(_Part):
    user_config: _UserConfig


@dataclass(frozen=True)
class _Entity:
    """An entity of a file.

    Attributes:
        label: The entity for users: ``queue orders``.
        settings: Its settings, by the names of arguments.
        get: A function that returns its properties.
        create: A function that creates it with settings, and returns its properties.
        update: A function that changes settings of its properties.
    """

    label: str
    settings: Mapping[str, JsonValue]
    get: Callable[[], Any]
    create: Callable[..., Any]
    update: Callable[..., None]


class NamespaceFile:
    """The entities that a file describes.

    Args:
        file: The file, for errors.
        content: The file's content.
    """

    def __init__(self, file: Path, content: _Content) -> None:
        self._file = file
        self._namespace = content.user_config.namespaces[0]

    @classmethod
    def read(cls, file: Path) -> NamespaceFile:
        """Read a file; nothing is created yet.

        Args:
            file: A JSON file in the format of Microsoft's emulator.

        Raises:
            NamespaceFileError: The file does not have that format.
            OSError: The file cannot be read.
        """
        try:
            text = file.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise NamespaceFileError(f"{file}: it is not UTF-8, at byte {error.start}: save it as UTF-8") from error
        try:
            content = _validated(text)
        except ValidationError as error:
            raise NamespaceFileError("\n".join(_told(file, error))) from error
        ignored = list(dict.fromkeys(_without_effect(content.user_config)))
        if ignored:
            LOGGER.warning("%s: no effect here: %s", file, ", ".join(ignored))
        return cls(file, content)

    def apply(self, administration: ServiceBusAdministrationClient) -> list[str]:
        """Create what is missing, and change what differs; entities that the file does not name stay as they are.

        If a subscription is created with rules, it has these alone, without ``$Default``.

        Args:
            administration: A client of the namespace, whose name need not be that in the file.

        Returns:
            The changes, a line for each.

        Raises:
            NamespaceFileError: The namespace refuses an entity or a change; the entities before it in the file exist.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        namespace = self._namespace
        if namespace.messaging_sku is not None or namespace.partitions is not None:
            with self._blaming("the namespace"):
                administration.create_namespace(namespace.messaging_sku or "Premium", namespace.partitions)
        if namespace.longest_lock is not None:
            with self._blaming("the namespace"):
                administration.update_namespace(longest_lock=namespace.longest_lock)
        entities = list(self._entities(administration))
        changes, found, created = list[str](), dict[str, Any](), set[str]()
        # Destinations must exist before other entities forward to them, and may be further below in the file.
        for entity in entities:
            with self._blaming(entity.label):
                try:
                    found[entity.label] = entity.get()
                except MessagingEntityNotFoundError:
                    found[entity.label] = entity.create(
                        **{name: value for name, value in entity.settings.items() if name not in FORWARDS}
                    )
                    created.add(entity.label)
                    changes.append(f"created {entity.label}")
        for topic in namespace.topics:
            for subscription in topic.subscriptions:
                label = _label_of(topic, subscription)
                with self._blaming(f"the rules of {label}"):
                    changes += _apply_rules(administration, topic.name, subscription, label in created)
        for entity in entities:
            with self._blaming(entity.label):
                changes += _update(entity, found[entity.label], entity.label in created)
        return changes

    def _entities(self, administration: ServiceBusAdministrationClient) -> Iterator[_Entity]:
        for queue in self._namespace.queues:
            yield _Entity(
                f"queue {queue.name}",
                queue.properties,
                partial(administration.get_queue, queue.name),
                partial(administration.create_queue, queue.name),
                administration.update_queue,
            )
        for topic in self._namespace.topics:
            yield _Entity(
                f"topic {topic.name}",
                topic.properties,
                partial(administration.get_topic, topic.name),
                partial(administration.create_topic, topic.name),
                administration.update_topic,
            )
            for subscription in topic.subscriptions:
                yield _Entity(
                    _label_of(topic, subscription),
                    subscription.properties,
                    partial(administration.get_subscription, topic.name, subscription.name),
                    partial(administration.create_subscription, topic.name, subscription.name),
                    partial(administration.update_subscription, topic.name),
                )

    @contextmanager
    def _blaming(self, label: str) -> Generator[None, None, None]:
        try:
            yield
        except ServiceBusCommunicationError:
            raise
        except (ServiceBusError, ValueError) as error:
            raise NamespaceFileError(ErrorText(f"{self._file}: {label}: ", text_of_error(error))) from error


def _validated(text: str) -> _Content:
    """Return the content of a text in JSON, perhaps with comments and trailing commas.

    Raises:
        ValidationError: It is not JSON, or not the content of such a file.
    """
    try:
        return _Content.model_validate_json(text)
    except ValidationError as error:
        if error.errors()[0]["type"] != "json_invalid":
            raise
        try:
            # Hundreds of times slower, so that strict JSON is tried first.
            content = json5.loads(text, allow_duplicate_keys=False)
        except (ValueError, RecursionError):
            raise error from None
    return _Content.model_validate(content)


def _without_effect(config: _UserConfig) -> Iterator[str]:
    """Yield the names of entries that have no effect."""
    if config.logging is not None:
        yield "Logging"
    for namespace in config.namespaces:
        if namespace.properties is not None:
            yield "Properties of the namespace"
        for rule in _rules_of(namespace.topics):
            for part in (rule.sql_filter, rule.correlation_filter, rule.action):
                if part is not None:
                    yield from (f"{name} of rules" for name in part.without_effect())


def _rules_of(topics: Iterable[_Topic]) -> Iterator[_RuleSettings]:
    for topic in topics:
        for subscription in topic.subscriptions:
            yield from (rule.properties for rule in subscription.rules)


def _label_of(topic: _Topic, subscription: _Subscription) -> str:
    return f"subscription {topic.name}{SUBSCRIPTIONS}{subscription.name}"


def _update(entity: _Entity, properties: Any, created: bool) -> list[str]:
    """Change the settings of an entity that differ from its properties."""
    wanted = {
        name: value
        for name, value in entity.settings.items()
        if (name in FORWARDS or not created) and not _is_same(name, getattr(properties, name), value)
    }
    if not wanted:
        return []
    entity.update(properties, **wanted)
    return [] if created else [f"changed {entity.label}: {', '.join(map(to_pascal, wanted))}"]


def _is_same(name: str, found: object, wanted: JsonValue) -> bool:
    if isinstance(found, timedelta):
        try:
            return found == _DURATION.validate_python(wanted)
        except ValidationError:
            return False  # The update refuses it by name.
    if isinstance(found, RetryPolicy):
        return found == RetryPolicy.model_validate(wanted)
    if name in FORWARDS and found is not None:
        # The administration returns an address.
        found, wanted = str(found), str(wanted)
        return found.rpartition("/")[2].lower() == wanted.rpartition("/")[2].lower()
    return found == wanted


def _apply_rules(
    administration: ServiceBusAdministrationClient, topic: str, subscription: _Subscription, created: bool
) -> list[str]:
    """Create the rules that a subscription lacks, and change those that differ."""
    name, changes = subscription.name, list[str]()
    found = {rule.name.lower(): rule for rule in administration.list_rules(topic, name)} if subscription.rules else {}
    for rule in subscription.rules:
        chosen, action = rule.properties.filter, rule.properties.sql_action
        known = found.get(rule.name.lower())
        if known is None:
            administration.create_rule(topic, name, rule.name, filter=chosen, action=action)
            changes.append(f"created rule {rule.name} of {topic}{SUBSCRIPTIONS}{name}")
        elif (known.filter, known.action) != (chosen, action):
            known.filter, known.action = chosen, action
            administration.update_rule(topic, name, known)
            changes.append(f"changed rule {rule.name} of {topic}{SUBSCRIPTIONS}{name}")
    has_default = any(rule.name == _DEFAULT_RULE for rule in subscription.rules)
    if created and not has_default and (subscription.rules or not subscription.default_rule):
        administration.delete_rule(topic, name, _DEFAULT_RULE)
    return changes


def _told(file: Path, error: ValidationError) -> Iterator[str]:
    """Return a line for each error, with its place in the file."""
    for problem in error.errors(include_url=False):
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".")
        unknown = problem["type"] == "extra_forbidden"
        text = "there is no entry of that name here" if unknown else problem["msg"].removeprefix("Value error, ")
        yield f"{file}: {place}: {text}" if place else f"{file}: {text}"
