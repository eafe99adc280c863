"""Behaviours of Azure's SDK that show without Kafka: messages as objects, connection strings, names, quotas."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import threading
from datetime import timedelta
from typing import Any

import pytest

import kafkabus.aio
import kafkabus.aio.management
from kafkabus import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    parse_connection_string,
)
from kafkabus import management as admin
from kafkabus._core.delivery import Delivery
from kafkabus._core.message import as_message
from kafkabus._core.record import StoredRecord
from kafkabus._core.settlement import SettlementBatch, by_delivery
from kafkabus._sync.engine.receiver_engine import engine_of
from kafkabus._sync.handles.sender import _check_timeout
from kafkabus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from kafkabus.exceptions import InvalidOperationError, ServiceBusQuotaExceededError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.entities import FOREVER

RECEIVING = (
    "session_id sub_queue receive_mode max_wait_time auto_lock_renewer prefetch_count client_identifier socket_timeout"
)
TOPIC = (
    "default_message_time_to_live max_size_in_megabytes requires_duplicate_detection "
    "duplicate_detection_history_time_window enable_batched_operations size_in_bytes "
    "filtering_messages_before_publishing authorization_rules support_ordering auto_delete_on_idle "
    "enable_partitioning enable_express user_metadata max_message_size_in_kilobytes"
)
SUBSCRIPTION = (
    "lock_duration requires_session default_message_time_to_live dead_lettering_on_message_expiration "
    "dead_lettering_on_filter_evaluation_exceptions max_delivery_count enable_batched_operations forward_to "
    "user_metadata forward_dead_lettered_messages_to auto_delete_on_idle"
)
COUNTS = "name accessed_at_utc created_at_utc updated_at_utc"
SUBSCRIPTION_COUNTS = (
    "total_message_count active_message_count dead_letter_message_count transfer_message_count "
    "transfer_dead_letter_message_count"
)

EMULATOR = "Endpoint=sb://localhost:5672;SharedAccessKeyName=a;SharedAccessKey=b"


def test_a_send_may_take_60_seconds() -> None:
    """This is the default timeout."""
    assert _check_timeout(None) == 60.0


def test_a_settled_message_survives_pickling() -> None:
    """An unsettled message of the same delivery keeps its token."""
    delivery = Delivery("q", 3, "00000000000000ab", 61_000, 2, FOREVER)
    settled, locked = (
        ServiceBusReceivedMessage(StoredRecord(("t", 3, offset), (None, b"body", []), (2, 1_000)), delivery)
        for offset in (7, 8)
    )
    (held,) = by_delivery([settled, locked])
    assert held.mark_settled(lost=[(8, 8)]) == [locked]
    settled, other = pickle.loads(pickle.dumps([settled, locked]))  # noqa: S301 - our own
    assert (str(settled), settled.lock_token, settled.locked_until_utc) == ("body", None, None)
    assert (other.lock_token, other.locked_until_utc) == (locked.lock_token, locked.locked_until_utc)
    assert other.lock_token is not None


def test_the_properties_of_an_amqp_message_may_be_a_dictionary() -> None:
    """The dictionary may have the fields of AmqpMessageProperties, and no others."""
    fields: dict[str, Any] = {
        "message_id": "m",
        "subject": b"s",
        "group_id": "g",
        "to": "somebody",
        "reply_to_group_id": "r",
        "user_id": b"u",
    }
    given = AmqpAnnotatedMessage(data_body=b"x", properties=fields)
    assert isinstance(given.properties, AmqpMessageProperties)
    assert given.properties == AmqpMessageProperties(**fields)
    message = as_message(given)
    assert (message.message_id, message.subject, message.session_id) == ("m", "s", "g")
    assert (message.to, message.reply_to_session_id, message.reply_to) == ("somebody", "r", None)
    raw = message.raw_amqp_message.properties
    assert raw is not None
    assert (raw.user_id, raw.content_type) == (b"u", None)
    with pytest.raises(TypeError, match="colour"):
        AmqpAnnotatedMessage(data_body=b"x", properties={"colour": "red"})


@pytest.mark.parametrize("name", ["correlation_id", "subject", "to", "reply_to"])
def test_texts_have_no_limit(name: str) -> None:
    """That holds at construction and afterwards; but they must be texts, or identifiers."""
    arguments: dict[str, Any] = {name: "a" * 1000}
    message = ServiceBusMessage("x", **arguments)
    assert getattr(message, name) == "a" * 1000
    setattr(message, name, "b" * 129)
    assert getattr(message, name) == "b" * 129
    with pytest.raises(TypeError, match=f"{name} is float"):
        setattr(message, name, 0.5)


def test_the_emulators_port_belongs_to_its_name() -> None:
    """The port is the default if the string says that it is the emulator, and only then."""
    emulator = parse_connection_string(f"{EMULATOR};UseDevelopmentEmulator=true;")
    assert (emulator.fully_qualified_namespace, emulator.endpoint) == ("localhost:5672", "sb://localhost:5672/")
    service = parse_connection_string(f"{EMULATOR};UseDevelopmentEmulator=false")
    assert service.fully_qualified_namespace == "localhost"


def test_what_is_no_message_is_said_before_that_it_is_named_twice() -> None:
    """The error about the type comes first."""
    with pytest.raises(TypeError, match="NoneType cannot be settled"):
        by_delivery([None, None])  # type: ignore[list-item]  # what a program might do


def test_a_renewer_that_is_closed_while_it_asks_tells_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application that closed the renewer expects no more calls of its callback."""
    told: list[object] = []
    with (
        InMemoryNamespace(upkeep=False) as namespace,
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration,
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
    ):
        administration.create_queue("q", lock_duration=timedelta(seconds=1))
        renewer = AutoLockRenewer(on_lock_renew_failure=lambda message, _error: told.append(message))
        asked = threading.Event()

        def lost_while_closing(held: list[SettlementBatch]) -> list[ServiceBusReceivedMessage]:
            renewer.close(wait=False)
            asked.set()
            return [message for one in held for message in one.messages]

        with client.get_queue_sender("q") as sender, client.get_queue_receiver("q") as receiver:
            monkeypatch.setattr(engine_of(receiver).settler, "renew", lost_while_closing)
            sender.send_messages(ServiceBusMessage("x"))
            (message,) = receiver.receive_messages(max_wait_time=60)
            renewer.register(receiver, message)
            assert asked.wait(20)
            renewer.close()
            assert message.auto_renew_error is not None
            assert told == []


@pytest.mark.parametrize(
    ("method", "positional", "keywords"),
    [
        ("get_topic_sender", "topic_name", "client_identifier socket_timeout"),
        ("get_subscription_receiver", "topic_name subscription_name", RECEIVING),
        ("list_subscription_sessions", "topic_name subscription_name", "state_updated_after timeout"),
    ],
)
def test_a_client_has_azure_s_methods_for_topics(method: str, positional: str, keywords: str) -> None:
    """The parameters are the same, and all keywords are optional. None of the methods is awaited."""
    for client in (ServiceBusClient, kafkabus.aio.ServiceBusClient):
        function = getattr(client, method)
        assert not inspect.iscoroutinefunction(function)
        _check_parameters(function, positional, keywords)


@pytest.mark.parametrize(
    ("method", "positional", "keywords"),
    [
        ("create_topic", "topic_name", TOPIC),
        ("get_topic", "topic_name", ""),
        ("get_topic_runtime_properties", "topic_name", ""),
        ("update_topic", "topic", ""),
        ("delete_topic", "topic_name", ""),
        ("list_topics", "", ""),
        ("list_topics_runtime_properties", "", ""),
        ("create_subscription", "topic_name subscription_name", SUBSCRIPTION),
        ("get_subscription", "topic_name subscription_name", ""),
        ("get_subscription_runtime_properties", "topic_name subscription_name", ""),
        ("update_subscription", "topic_name subscription", ""),
        ("delete_subscription", "topic_name subscription_name", ""),
        ("list_subscriptions", "topic_name", ""),
        ("list_subscriptions_runtime_properties", "topic_name", ""),
        ("create_rule", "topic_name subscription_name rule_name", "filter action"),
        ("get_rule", "topic_name subscription_name rule_name", ""),
        ("update_rule", "topic_name subscription_name rule", ""),
        ("delete_rule", "topic_name subscription_name rule_name", ""),
        ("list_rules", "topic_name subscription_name", ""),
    ],
)
def test_administration_has_azure_s_methods_for_topics(method: str, positional: str, keywords: str) -> None:
    """The parameters are the same, and updates take any settings by keyword.

    asyncio's lists are iterated, the rest is awaited.
    """
    for client in (ServiceBusAdministrationClient, kafkabus.aio.management.ServiceBusAdministrationClient):
        function = getattr(client, method)
        awaited = client is not ServiceBusAdministrationClient and not method.startswith("list_")
        assert inspect.iscoroutinefunction(function) is awaited
        _check_parameters(function, positional, keywords)
        kinds = [one.kind for one in inspect.signature(function).parameters.values()]
        assert (inspect.Parameter.VAR_KEYWORD in kinds) is method.startswith("update_")


def _check_parameters(function: Any, positional: str, keywords: str) -> None:
    parameters = dict(inspect.signature(function).parameters)
    assert parameters.pop("self").kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    required = [one for one in parameters.values() if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert [one.name for one in required] == positional.split()
    assert {one.default for one in required} <= {inspect.Parameter.empty}
    optional = {one.name: one.default for one in parameters.values() if one.kind is inspect.Parameter.KEYWORD_ONLY}
    assert set(keywords.split()) <= set(optional)
    assert inspect.Parameter.empty not in optional.values()


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (admin.TopicProperties, f"name availability_status status {TOPIC}"),
        (admin.SubscriptionProperties, f"name availability_status status {SUBSCRIPTION}"),
        (admin.RuleProperties, "name filter action created_at_utc"),
        (
            admin.TopicRuntimeProperties,
            f"{COUNTS} size_in_bytes subscription_count scheduled_message_count sql_filter_count correlation_filter_count",
        ),
        (
            admin.SubscriptionRuntimeProperties,
            f"{COUNTS} {SUBSCRIPTION_COUNTS}",
        ),
        (
            admin.CorrelationRuleFilter,
            "correlation_id message_id to reply_to label session_id reply_to_session_id content_type properties",
        ),
        (admin.SqlRuleFilter, "sql_expression parameters requires_preprocessing"),
        (admin.SqlRuleAction, "sql_expression parameters requires_preprocessing"),
    ],
)
def test_what_is_told_of_topics_has_azure_s_names(kind: Any, names: str) -> None:
    """All names of Azure's exist, and a few of kafkabus's own."""
    assert set(names.split()) <= {one.name for one in dataclasses.fields(kind)}


def test_a_namespace_holds_a_hundred_partitioned_queues_and_topics() -> None:
    """They count together, without subscriptions. Plain ones still fit, and the error says how many there are."""
    with (
        InMemoryNamespace(upkeep=False) as namespace,
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration,
    ):
        for number in range(50):
            administration.create_queue(f"q{number}", enable_partitioning=True)
            administration.create_topic(f"t{number}", enable_partitioning=True)
            administration.create_subscription("t0", f"s{number}")
        for create in (administration.create_queue, administration.create_topic):
            with pytest.raises(
                ServiceBusQuotaExceededError, match="holds 100 partitioned entities, and no more than 100"
            ):
                create("many", enable_partitioning=True)
        administration.create_topic("plain")
        administration.create_subscription("t1", "s")
        administration.delete_queue("q0")
        assert administration.create_topic("many", enable_partitioning=True).enable_partitioning
        with pytest.raises(ServiceBusQuotaExceededError, match="100 partitioned"):
            administration.create_queue("q0", enable_partitioning=True)


def test_a_namespace_decides_what_topics_it_has() -> None:
    """A Basic one has none. A Premium one sets the number of partitions of all, and takes larger messages."""
    with (
        InMemoryNamespace(upkeep=False) as basic,
        ServiceBusAdministrationClient.from_connection_string(basic.connection_string) as administration,
    ):
        administration.create_namespace("Basic")
        with pytest.raises(InvalidOperationError, match="topics are not in the Basic tier"):
            administration.create_topic("t")
        assert list(administration.list_topics()) == []
    with (
        InMemoryNamespace(upkeep=False) as premium,
        ServiceBusAdministrationClient.from_connection_string(premium.connection_string) as administration,
        ServiceBusClient.from_connection_string(premium.connection_string) as client,
    ):
        administration.create_namespace("Premium", 4)
        topic = administration.create_topic("t")
        assert (topic.enable_partitioning, topic.max_size_in_megabytes) == (True, 4 * 1024)
        assert topic.max_message_size_in_kilobytes == 1024
        with pytest.raises(InvalidOperationError, match="created with 4 partition"):
            administration.create_topic("plain", enable_partitioning=False)
        administration.create_subscription("t", "s")
        assert len(administration.get_subscription_runtime_properties("t", "s").partitions) == 4
        body = b"x" * 1_000_000
        with client.get_topic_sender("t") as sender, client.get_subscription_receiver("t", "s") as receiver:
            sender.send_messages(ServiceBusMessage(body))
            (message,) = receiver.receive_messages(max_wait_time=20)
            assert b"".join(message.body or ()) == body
