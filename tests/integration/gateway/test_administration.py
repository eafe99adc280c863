"""The administration over HTTP, with the unmodified administration client of azure-servicebus and over TLS."""

from __future__ import annotations

import asyncio
import ssl
import threading
import uuid
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._async.stores.entity_descriptions import EntityDescriptions
from kafkabus._runtime.http_connections import ConnectionLimits
from kafkabus.embedded import RunningNamespace
from kafkabus.gateway import attempts, health
from kafkabus.gateway.administration import app, create_app, serve
from kafkabus.gateway.administration import server as server_module
from kafkabus.gateway.sas_tokens import Policies, Policy, Right
from kafkabus.management import CorrelationRuleFilter as OwnCorrelationRuleFilter
from kafkabus.management import RetryPolicy
from kafkabus.management import ServiceBusAdministrationClient as OwnAdministrationClient
from kafkabus.management import SqlRuleAction as OwnSqlRuleAction
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.secret import Secret
from tests.certificates import Authority
from tests.signatures import signature

ATOM = "{http://www.w3.org/2005/Atom}"
SERVICE_BUS = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
KEY = "the-key-of-a-test-of-the-gateway"
NOWHERE = "Endpoint=sb://nowhere.localhost/;KafkaBootstrapServers=127.0.0.1:1;Redis=redis://127.0.0.1:1/0"
FOREVER = timedelta(days=10675199, hours=2, minutes=48, seconds=5, microseconds=477581)


@dataclass(frozen=True)
class Gateway:
    """A gateway that serves the administration of a namespace.

    Attributes:
        connection_string: The connection string of the namespace, for kafkabus's own clients.
        port: The port of the administration.
        ca: The file of the authority that signed its certificate.
    """

    connection_string: str
    port: int
    ca: Path

    def client(self, name: str = "Root", key: str = KEY) -> ServiceBusAdministrationClient:
        """Return the SDK's administration client with a policy."""
        return ServiceBusAdministrationClient.from_connection_string(
            f"Endpoint=sb://localhost:{self.port};SharedAccessKeyName={name};SharedAccessKey={key};"
            "UseDevelopmentEmulator=true",
            connection_verify=str(self.ca),
            retry_total=0,
        )

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
        """Return the status and the text of an answer to a request."""
        connection = HTTPSConnection(
            "localhost", self.port, timeout=30, context=ssl.create_default_context(cafile=str(self.ca))
        )
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})  # type: ignore[arg-type]  # bytes, or an iterator of them
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@contextmanager
def gateway(folder: Path, connection_string: str, policies: Policies | None = None) -> Generator[Gateway]:
    """Serve a namespace's administration in a thread."""
    authority = Authority(folder)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.certify("gateway").both)
    opened, loops, ports = threading.Event(), list[asyncio.AbstractEventLoop](), list[int]()
    ended = asyncio.Event()

    async def run() -> None:
        async with serve(create_app(connection_string, policies), "127.0.0.1", 0, tls) as server:
            loops.append(asyncio.get_running_loop())
            ports.append(server.port)
            opened.set()
            await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert opened.wait(30)
    try:
        yield Gateway(connection_string, ports[0], authority.file)
    finally:
        loops[0].call_soon_threadsafe(ended.set)
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway without policies, of a namespace in memory."""
    with InMemoryNamespace("tests") as namespace, gateway(tmp_path, namespace.connection_string) as opened:
        yield opened


@pytest.fixture(params=["memory", pytest.param("embedded", marks=pytest.mark.servers)])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gateway]:
    """A gateway without policies, of a namespace in memory, or on Kafka and Redis."""
    if request.param == "memory":
        yield request.getfixturevalue("served")
    else:
        runtime: RunningNamespace = request.getfixturevalue("runtime")
        with gateway(tmp_path, runtime.connection_string) as opened:
            yield opened


@pytest.fixture
def admin(served: Gateway) -> Iterator[ServiceBusAdministrationClient]:
    """The SDK's administration client."""
    with served.client() as client:
        yield client


def settings(properties: Any) -> dict[str, Any]:
    """Return the settings in properties of the SDK's."""
    return {
        name: value for name, value in properties.items() if name not in {"authorization_rules", "availability_status"}
    }


def test_entities_live_their_lives(anywhere: Gateway) -> None:
    """A queue, a topic, a subscription and a rule are created, read, listed, changed, counted and deleted."""
    queue, topic = f"gateway/q-{uuid.uuid4().hex[:8]}", f"gateway/t-{uuid.uuid4().hex[:8]}"
    with anywhere.client() as admin:
        assert admin.create_queue(queue, enable_partitioning=True).enable_partitioning
        assert admin.create_topic(topic).name == topic
        assert admin.create_subscription(topic, "one", forward_dead_lettered_messages_to=queue).name == "one"
        admin.create_rule(topic, "one", "red", filter=SqlRuleFilter("colour = 'red'"))
        with ServiceBusClient.from_connection_string(anywhere.connection_string) as client:
            for sender in (client.get_queue_sender(queue), client.get_topic_sender(topic)):
                with sender:
                    sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
            with client.get_queue_receiver(queue, max_wait_time=30) as receiver:
                [message] = receiver.receive_messages(max_message_count=1)
                receiver.dead_letter_message(message)
        counts = admin.get_queue_runtime_properties(queue)
        assert (counts.total_message_count, counts.active_message_count, counts.dead_letter_message_count) == (2, 1, 1)
        assert counts.size_in_bytes
        assert counts.accessed_at_utc
        assert counts.created_at_utc
        assert counts.accessed_at_utc >= counts.created_at_utc
        of_topic = admin.get_topic_runtime_properties(topic)
        assert of_topic.subscription_count == 1
        # Azure's SDK for Python shows them in its generated model alone.
        generated: Any = of_topic._internal_td
        assert (generated.sql_filter_count, generated.correlation_filter_count) == (2, 0)
        assert admin.get_subscription_runtime_properties(topic, "one").active_message_count == 2
        known = admin.get_queue(queue)
        known.max_delivery_count = 7
        admin.update_queue(known)
        assert admin.get_queue(queue).max_delivery_count == 7
        assert queue in {one.name for one in admin.list_queues()}
        assert topic in {one.name for one in admin.list_topics()}
        assert [one.name for one in admin.list_subscriptions(topic)] == ["one"]
        assert [one.name for one in admin.list_rules(topic, "one")] == ["$Default", "red"]
        admin.delete_rule(topic, "one", "red")
        admin.delete_subscription(topic, "one")
        admin.delete_topic(topic)
        admin.delete_queue(queue)
        for get in (admin.get_queue, admin.get_queue_runtime_properties):
            with pytest.raises(ResourceNotFoundError):
                get(queue)


def test_new_entities_have_the_services_defaults(admin: ServiceBusAdministrationClient) -> None:
    """As the SDK's client reads them."""
    queue = {
        "name": "q",
        "auto_delete_on_idle": FOREVER,
        "dead_lettering_on_message_expiration": False,
        "default_message_time_to_live": FOREVER,
        "duplicate_detection_history_time_window": timedelta(minutes=10),
        "enable_batched_operations": True,
        "enable_express": False,
        "enable_partitioning": False,
        "forward_dead_lettered_messages_to": None,
        "forward_to": None,
        "lock_duration": timedelta(minutes=1),
        "max_delivery_count": 10,
        "max_message_size_in_kilobytes": 256,
        "max_size_in_megabytes": 1024,
        "requires_duplicate_detection": False,
        "requires_session": False,
        "status": "Active",
        "user_metadata": None,
    }
    assert settings(admin.create_queue("q")) == queue
    assert settings(admin.get_queue("q")) == queue
    topic = settings(admin.create_topic("t"))
    assert topic.items() >= {"support_ordering": True, "size_in_bytes": 0, "enable_express": False}.items()
    assert topic == settings(admin.get_topic("t"))
    subscription = settings(admin.create_subscription("t", "s"))
    assert subscription.items() >= {"dead_lettering_on_filter_evaluation_exceptions": True, "name": "s"}.items()
    assert subscription == settings(admin.get_subscription("t", "s"))
    assert admin.get_queue("q").availability_status == "Available"


QUEUE_SETTINGS: dict[str, Any] = {
    "auto_delete_on_idle": timedelta(hours=1),
    "dead_lettering_on_message_expiration": True,
    "default_message_time_to_live": timedelta(days=1, seconds=1.5),
    "duplicate_detection_history_time_window": timedelta(minutes=5),
    "enable_batched_operations": False,
    "enable_express": True,
    "enable_partitioning": True,
    "lock_duration": timedelta(seconds=30),
    "max_delivery_count": 3,
    "max_size_in_megabytes": 2048,
    "requires_duplicate_detection": True,
    "requires_session": True,
    "user_metadata": "<a> & 'b' \N{SNOWMAN}",
    "max_message_size_in_kilobytes": 256,
    "status": "SendDisabled",
}


def test_all_settings_of_a_queue_are_kept(admin: ServiceBusAdministrationClient) -> None:
    """And survive an update with all of them."""
    made = settings(admin.create_queue("q", **QUEUE_SETTINGS))
    assert made.items() >= (QUEUE_SETTINGS | {"max_size_in_megabytes": 16 * 2048}).items()
    admin.update_queue(admin.get_queue("q"))
    assert settings(admin.get_queue("q")) == made


def test_destinations_are_kept(admin: ServiceBusAdministrationClient) -> None:
    """Clients name them, or give their address at the gateway."""
    admin.create_queue("Some/Queue")
    admin.create_topic("t")
    for made in (
        admin.create_queue("q", forward_to="Some/Queue", forward_dead_lettered_messages_to="some/queue"),
        admin.create_subscription("t", "s", forward_to="Some/Queue", forward_dead_lettered_messages_to="some/queue"),
    ):
        assert (made.forward_to or "").endswith("/Some/Queue")
        assert (made.forward_dead_lettered_messages_to or "").endswith("/some/queue")
    admin.update_queue(admin.get_queue("q"), max_delivery_count=3)
    assert (admin.get_queue("q").forward_to or "").endswith("/Some/Queue")


def test_settings_that_are_left_out_get_their_defaults(served: Gateway, admin: ServiceBusAdministrationClient) -> None:
    """So clients clear a destination; kafkabus's own settings, which they do not know, stay."""
    admin.create_queue("other")
    with OwnAdministrationClient.from_connection_string(served.connection_string) as own:
        own.create_queue("q", forward_to="other", max_delivery_count=3, settled_retention=timedelta(hours=2))
        known = admin.get_queue("q")
        known.forward_to = None
        known.user_metadata = "x"
        admin.update_queue(known)
        changed = own.get_queue("q")
    assert (changed.forward_to, changed.max_delivery_count, changed.user_metadata) == (None, 3, "x")
    assert changed.settled_retention == timedelta(hours=2)


def test_settings_of_kafkabus_survive_updates(served: Gateway, admin: ServiceBusAdministrationClient) -> None:
    """Azure's clients write the whole description of an entity, which has no such setting."""
    policy = RetryPolicy.exponential(1, 300)
    with OwnAdministrationClient.from_connection_string(served.connection_string) as own:
        own.create_queue("q", retry_policy=policy)
        own.create_topic("t", unmatched_to="q")
        own.create_subscription("t", "s", retry_policy=policy)
        admin.update_topic(admin.get_topic("t"), user_metadata="x")
        assert [subscription.name for subscription in admin.list_subscriptions("t")] == ["s"]
        assert admin.get_topic_runtime_properties("t").subscription_count == 1
        admin.update_queue(admin.get_queue("q"), max_delivery_count=3)
        admin.update_subscription("t", admin.get_subscription("t", "s"), max_delivery_count=4)
        queue, subscription = own.get_queue("q"), own.get_subscription("t", "s")
        topic = own.get_topic("t")
    assert (topic.user_metadata, str(topic.unmatched_to).rpartition("/")[2]) == ("x", "q")
    assert (queue.max_delivery_count, queue.retry_policy) == (3, policy)
    assert (subscription.max_delivery_count, subscription.retry_policy) == (4, policy)


def test_all_settings_of_topics_and_subscriptions_are_kept(admin: ServiceBusAdministrationClient) -> None:
    """And survive an update with all of them."""
    of_topics: dict[str, Any] = {
        "auto_delete_on_idle": timedelta(hours=1),
        "default_message_time_to_live": timedelta(minutes=9),
        "duplicate_detection_history_time_window": timedelta(minutes=5),
        "enable_partitioning": True,
        "requires_duplicate_detection": True,
        "support_ordering": False,
        "user_metadata": "x",
        "status": "SendDisabled",
    }
    made = settings(admin.create_topic("t", **of_topics))
    assert made.items() >= of_topics.items()
    admin.update_topic(admin.get_topic("t"), user_metadata="y")
    assert settings(admin.get_topic("t")) == made | {"user_metadata": "y"}
    of_subscriptions: dict[str, Any] = {
        "lock_duration": timedelta(seconds=20),
        "requires_session": True,
        "default_message_time_to_live": timedelta(minutes=8),
        "dead_lettering_on_message_expiration": True,
        "dead_lettering_on_filter_evaluation_exceptions": False,
        "max_delivery_count": 4,
        "enable_batched_operations": False,
        "user_metadata": "z",
        "auto_delete_on_idle": timedelta(hours=2),
        "status": "ReceiveDisabled",
    }
    made = settings(admin.create_subscription("t", "s", **of_subscriptions))
    assert made.items() >= of_subscriptions.items()
    admin.update_subscription("t", admin.get_subscription("t", "s"), max_delivery_count=5)
    assert settings(admin.get_subscription("t", "s")) == made | {"max_delivery_count": 5}


def test_authorization_rules_are_carried(admin: ServiceBusAdministrationClient) -> None:
    """With their keys, rights and times."""
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN],
        created_at_utc=datetime(2030, 1, 31, tzinfo=timezone.utc),
        modified_at_utc=datetime(2030, 2, 1, tzinfo=timezone.utc),
        key_name="app",
        primary_key="first",
        secondary_key="second",
    )
    admin.create_queue("q", authorization_rules=[rule])
    admin.update_queue(admin.get_queue("q"))
    [back] = admin.get_queue("q").authorization_rules or []
    assert {name: vars(back)[name] for name in vars(rule)} == vars(rule)


@pytest.mark.parametrize(
    ("asked", "action"),
    [
        (TrueRuleFilter(), None),
        (FalseRuleFilter(), None),
        (
            SqlRuleFilter("a = @a AND b < @b", {"@a": "x & <y>", "@b": 1 << 40}),
            SqlRuleAction("SET c = @c", {"@c": timedelta(hours=1)}),
        ),
        (
            CorrelationRuleFilter(
                correlation_id="1",
                message_id="2",
                to="3",
                reply_to="4",
                label="5",
                session_id="6",
                reply_to_session_id="7",
                content_type="8",
                properties={
                    "text": "a",
                    "int": 7,
                    "long": -(1 << 40),
                    "double": 0.5,
                    "boolean": True,
                    "time": datetime(2030, 1, 31, 12, tzinfo=timezone.utc),
                    "duration": timedelta(minutes=1),
                },
            ),
            SqlRuleAction("REMOVE a"),
        ),
    ],
)
def test_rules_keep_filters_and_actions(
    admin: ServiceBusAdministrationClient, asked: SqlRuleFilter | CorrelationRuleFilter, action: SqlRuleAction | None
) -> None:
    """When they are created, and when another rule becomes such a rule."""
    admin.create_topic("t")
    admin.create_subscription("t", "s")
    made = admin.create_rule("t", "s", "new", filter=asked, action=action)
    old = admin.create_rule("t", "s", "old", filter=SqlRuleFilter("1 = 2"))
    old.filter, old.action = asked, action
    admin.update_rule("t", "s", old)
    # The client reads no parameters as an empty mapping.
    expected = {name: value or {} for name, value in vars(asked).items() if name != "requires_preprocessing"}
    for rule in (made, *(admin.get_rule("t", "s", name) for name in ("new", "old"))):
        assert type(rule.filter) is type(asked)
        assert {name: vars(rule.filter)[name] or {} for name in expected} == expected
        assert (rule.action and rule.action.sql_expression) == (action and action.sql_expression)
        parameters = [dict(one.parameters or {}) for one in (rule.action, action) if one is not None]
        assert parameters[1:] == parameters[:-1]


def test_lists_have_pages(admin: ServiceBusAdministrationClient) -> None:
    """The client asks until it has all. Creating more queues than a page has takes seconds."""
    names = [f"q{number:03}" for number in range(101)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(admin.create_queue, names))
    assert [one.name for one in admin.list_queues()] == names
    pages = [[one.name for one in page] for page in admin.list_queues(max_page_size=40).by_page()]
    assert pages == [names[:40], names[40:80], names[80:]]
    assert [one.name for one in admin.list_queues(start_index=99)] == names[99:]
    assert [one.name for one in admin.list_queues_runtime_properties()] == names


def test_errors_are_those_of_the_service(admin: ServiceBusAdministrationClient) -> None:
    """With kafkabus's text, which names value, rule and remedy."""
    admin.create_queue("q")
    admin.create_topic("t")
    admin.create_subscription("t", "s")
    calls: list[tuple[type[HttpResponseError], int, str, Callable[[], object]]] = [
        (ResourceNotFoundError, 404, "The messaging entity 'none' could not be found", lambda: admin.get_queue("none")),
        (ResourceNotFoundError, 404, "'none' could not be found", lambda: admin.delete_topic("none")),
        (ResourceNotFoundError, 404, "no topic 'none'", lambda: list(admin.list_subscriptions("none"))),
        (ResourceNotFoundError, 404, "no topic 'none'", lambda: admin.create_subscription("none", "s")),
        (ResourceNotFoundError, 404, "no rule 'none'", lambda: admin.get_rule("t", "s", "none")),
        (ResourceNotFoundError, 404, "forward_to", lambda: admin.create_queue("p", forward_to="none")),
        (ResourceExistsError, 409, "SubCode=40900", lambda: admin.create_queue("Q")),
        (ResourceExistsError, 409, "SubCode=40900", lambda: admin.create_topic("q")),
        (ResourceExistsError, 409, "SubCode=40900", lambda: admin.create_subscription("t", "s")),
        (ResourceExistsError, 409, "SubCode=40900", lambda: admin.create_rule("t", "s", "$Default")),
        (HttpResponseError, 400, "up to 0:05:00", lambda: admin.create_queue("p", lock_duration=timedelta(hours=1))),
        (HttpResponseError, 400, "entity name 'p!'", lambda: admin.create_queue("p!")),
        (
            HttpResponseError,
            400,
            "where there should be",
            lambda: admin.create_rule("t", "s", "r", filter=SqlRuleFilter("a = =")),
        ),
        (
            HttpResponseError,
            400,
            "fixed at creation",
            lambda: admin.update_queue(admin.get_queue("q"), requires_session=True),
        ),
    ]
    for kind, status, text, call in calls:
        with pytest.raises(kind) as caught:
            call()
        assert (caught.value.status_code, text in str(caught.value)) == (status, True), (text, str(caught.value))


def test_quotas(served: Gateway) -> None:
    """A status that no client takes for missing rights."""
    with OwnAdministrationClient.from_connection_string(served.connection_string) as own:
        own.create_namespace("Basic")
    with served.client() as admin, pytest.raises(HttpResponseError, match="Basic"):
        admin.create_topic("t")


def test_the_namespace(admin: ServiceBusAdministrationClient) -> None:
    """Its name, tier and times."""
    properties = admin.get_namespace_properties()
    assert (properties.name, properties.messaging_sku, properties.namespace_type) == ("tests", "Standard", "Messaging")
    assert properties.created_at_utc
    assert properties.created_at_utc.tzinfo is not None


def signed(policy: str, scope: str = "https://localhost/", key: str = KEY) -> str:
    """Return a shared access signature."""
    return signature(scope, policy, key)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway with policies."""
    policies = Policies(
        [
            Policy("Root", (Secret(KEY),), frozenset(Right)),
            Policy("Sender", (Secret(KEY),), frozenset({Right.SEND})),
            Policy("Listener", (Secret(KEY),), frozenset({Right.LISTEN})),
            Policy("Orders", (Secret(KEY),), frozenset(Right), "orders"),
        ]
    )
    with InMemoryNamespace("tests") as namespace, gateway(tmp_path, namespace.connection_string, policies) as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "key", "why"),
    [
        ("Root", "another-key-of-a-test", "InvalidSignature"),
        ("Nobody", KEY, "InvalidSignature"),
        ("Sender", KEY, "Manage claim is required"),
        ("Orders", KEY, "does not cover"),
    ],
    ids=["key", "name", "right", "scope"],
)
def test_refused_tokens(guarded: Gateway, name: str, key: str, why: str) -> None:
    """Wrong keys and names, and too few rights, are 401."""
    with guarded.client(name, key) as admin, pytest.raises(ClientAuthenticationError, match=why) as caught:
        admin.create_queue("q")
    assert caught.value.status_code == 401
    assert guarded.ask("GET", "/q")[0] == 401
    assert guarded.ask("GET", "/q", Authorization="Bearer abc")[0] == 401


RESOURCES = ("/q", "/t/Subscriptions/s", "/t/Subscriptions/s/Rules/r")
READ = ("/$namespaceinfo", "/$Resources/queues", "/$Resources/topics", "/t/subscriptions", "/t/Subscriptions/s/Rules")
REQUESTS = [
    *(("PUT", path) for path in RESOURCES),
    *(("GET", path) for path in (*RESOURCES, *READ)),
    *(("HEAD", path) for path in RESOURCES),
    *(("DELETE", path) for path in (*RESOURCES, *READ)),
    ("GET", "/$Resources/none"),
    ("GET", "/"),
]
"""Requests of all kinds of resources, also those that are refused to all."""


def may_listen(method: str, path: str) -> bool:
    """Return whether the right to receive suffices."""
    return method in {"GET", "HEAD"} and "/rules" in path.lower()


@pytest.mark.parametrize(("policy", "right"), [("Root", "Manage"), ("Sender", "Send"), ("Listener", "Listen")])
def test_each_request_needs_its_right(guarded: Gateway, policy: str, right: str) -> None:
    """Manage for all but reading rules, for which Listen suffices; there is nothing there yet."""
    for method, path in REQUESTS:
        status, text = guarded.ask(method, path, Authorization=signed(policy))
        if right == "Manage" or (right == "Listen" and may_listen(method, path)):
            assert status != 401, (method, path, text)
        else:
            assert status == 401, (method, path, text)
            assert method == "HEAD" or "claim is required" in text


def test_rules_are_listed_and_not_changed_with_listen(guarded: Gateway) -> None:
    """As documented."""
    with guarded.client() as root, guarded.client("Listener") as listener:
        root.create_topic("t")
        root.create_subscription("t", "s")
        assert [one.name for one in listener.list_rules("t", "s")] == ["$Default"]
        assert listener.get_rule("t", "s", "$Default").name == "$Default"
        for change in (
            lambda: listener.create_rule("t", "s", "r"),
            lambda: listener.update_rule("t", "s", root.get_rule("t", "s", "$Default")),
            lambda: listener.delete_rule("t", "s", "$Default"),
            lambda: listener.get_subscription("t", "s"),
        ):
            with pytest.raises(ClientAuthenticationError, match="Manage claim is required"):
                change()
        assert [one.name for one in root.list_rules("t", "s")] == ["$Default"]


@pytest.mark.parametrize(
    "scope", ["orders", "orders/", "sb:orders", "x", "", "sb%3A%2F%2Flocalhost", "sb://localhost//"]
)
def test_a_token_of_a_malformed_scope_opens_nothing(guarded: Gateway, scope: str) -> None:
    """Neither that entity nor others."""
    for path in ("/orders", "/q"):
        status, text = guarded.ask("DELETE", path, Authorization=signed("Root", scope))
        assert (status, "malformed" in text) == (401, True), text


def test_wrong_keys_are_limited(guarded: Gateway) -> None:
    """The answer is one at which clients try again later; other policies are served."""
    for _ in range(attempts.MOST_OF_POLICY):
        assert guarded.ask("GET", "/q", Authorization=signed("Root", key="wrong"))[0] == 401
    assert guarded.ask("GET", "/q", Authorization=signed("Root"))[0] == 429
    assert guarded.ask("GET", "/t/Subscriptions/s/Rules", Authorization=signed("Listener"))[0] == 404


def test_a_policy_of_an_entity_administers_it(guarded: Gateway) -> None:
    """And nothing else, not even as a destination of its messages."""
    with guarded.client() as root, guarded.client("Orders") as admin:
        root.create_queue("invoices")
        admin.create_topic("orders")
        admin.create_subscription("orders", "s")
        with pytest.raises(ClientAuthenticationError, match=r"does not cover .*'invoices'"):
            admin.create_subscription("orders", "t", forward_to="invoices")
        with pytest.raises(ClientAuthenticationError):
            list(admin.list_queues())
        root.create_subscription("orders", "t", forward_to="invoices")
        assert [one.name for one in root.list_subscriptions("orders")] == ["s", "t"]


def test_requests_of_other_clients(served: Gateway) -> None:
    """Names that are percent-encoded, words in the other case, prefixes, and a first rule."""
    described = (
        '<a:entry xmlns:a="http://www.w3.org/2005/Atom"><a:content type="application/xml">'
        f'<TopicDescription xmlns="{SERVICE_BUS[1:-1]}"/></a:content></a:entry>'
    )
    assert served.ask("PUT", "/a%2Fb?api-version=2017-04", described)[0] == 201
    subscription = (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f'<SubscriptionDescription xmlns="{SERVICE_BUS[1:-1]}"><DefaultRuleDescription>'
        '<Filter xmlns:_XMLSchema-instance="http://www.w3.org/2001/XMLSchema-instance" '
        '_XMLSchema-instance:type="CorrelationFilter"><Label>red</Label></Filter><Name>red</Name>'
        "</DefaultRuleDescription></SubscriptionDescription></content></entry>"
    )
    assert served.ask("PUT", "/a/b/subscriptions/s?api-version=2021-05", subscription)[0] == 201
    status, text = served.ask("GET", "/a/b/subscriptions/s/rules?api-version=2021-05&$skip=0&$top=10")
    [entry] = fromstring(text).findall(f"{ATOM}entry")  # noqa: S314 - our own
    assert status == 200
    assert entry.findtext(f"{ATOM}title") == "red"
    assert entry.findtext(f"{ATOM}id") == (
        f"https://localhost:{served.port}/a/b/Subscriptions/s/Rules/red?api-version=2021-05"
    )
    assert entry.find(f".//{SERVICE_BUS}Action") is not None
    assert served.ask("GET", "/A%2fB/SUBSCRIPTIONS/S?enrich=true")[0] == 200
    assert served.ask("DELETE", "/a%2Fb")[0] == 200


def test_malformed_requests(served: Gateway) -> None:
    """Each is answered with an error in XML."""
    entry = b'<entry xmlns="http://www.w3.org/2005/Atom"><content>'
    bomb = b'<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;">]>' + entry + b"&c;</content></entry>"
    requests: list[tuple[int, str, str, object]] = [
        (400, "PUT", "/q", b"no XML"),
        (400, "PUT", "/q", bomb),
        (400, "PUT", "/q", entry + b"<RuleDescription/></content></entry>"),
        (400, "PUT", "/q", entry + b"<a>" * 80_000),
        (400, "GET", "/$Resources/Queues?$top=many", None),
        (404, "GET", "/", None),
        (404, "GET", "/$Resources/Hubs", None),
        (405, "POST", "/q", b""),
        (405, "PUT", "/$Resources/Queues", entry + b"<QueueDescription/></content></entry>"),
        (405, "DELETE", "/$namespaceinfo", None),
        (413, "PUT", "/q", entry + b"x" * app.LARGEST),
        (413, "PUT", "/q", iter([b"x" * 65_536] * 5)),
    ]
    for status, method, path, body in requests:
        answered, text = served.ask(method, path, body)
        assert (answered, fromstring(text).findtext("Code")) == (status, str(status)), (method, path)  # noqa: S314 - our own


def test_a_host_that_is_none(served: Gateway) -> None:
    """It would be part of the addresses of entities."""
    assert served.ask("GET", "/$namespaceinfo", Host="[a")[0] == 400


def test_health(served: Gateway) -> None:
    """As Microsoft's emulator answers; a queue may have that name."""
    assert served.ask("GET", "/health") == (200, '{"status":"healthy"}')
    with served.client() as admin:
        admin.create_queue("health")
        assert admin.get_queue("health").name == "health"


def test_health_is_looked_at_each_time(served: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """The namespace itself is remembered."""
    monkeypatch.setattr(health, "WITHIN", 0.2)
    assert served.ask("GET", "/health")[0] == 200

    async def silent(_: EntityDescriptions) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(EntityDescriptions, "catch_up", silent)
    assert served.ask("GET", "/health")[0] == 503
    monkeypatch.undo()
    assert served.ask("GET", "/health")[0] == 200


def test_a_page_of_none_has_no_next_page(served: Gateway) -> None:
    """A client that follows links would never end."""
    with served.client() as admin:
        admin.create_queue("q")
    assert 'rel="next"' not in served.ask("GET", "/$Resources/Queues?$top=0")[1]
    assert 'rel="next"' not in served.ask("GET", "/$Resources/Queues?$top=1")[1]


@pytest.mark.parametrize("text", ["a\r\nb\rc\nd", "a\x01b\uffff"])
def test_what_a_client_writes_back_changes_nothing(served: Gateway, text: str) -> None:
    """Not all characters are allowed in a document, and Python's client writes the ends of lines as line feeds."""
    filter_, action = OwnCorrelationRuleFilter(label=text), OwnSqlRuleAction(f"SET a = '{text}'")
    with (
        served.client() as admin,
        OwnAdministrationClient.from_connection_string(served.connection_string) as ours,
    ):
        admin.create_topic("t")
        ours.create_subscription("t", "s", user_metadata=text)
        ours.create_rule("t", "s", "r", filter=filter_, action=action)
        rule, subscription = admin.get_rule("t", "s", "r"), admin.get_subscription("t", "s")
        assert isinstance(rule.filter, CorrelationRuleFilter)
        if "\r" in text:
            assert (rule.filter.label, subscription.user_metadata) == (text, text)
        admin.update_rule("t", "s", rule)
        admin.update_subscription("t", subscription)
        after = ours.get_rule("t", "s", "r")
        assert (after.filter, after.action) == (filter_, action)
        assert ours.get_subscription("t", "s").user_metadata == text
        rule.filter = CorrelationRuleFilter(label="other")
        admin.update_rule("t", "s", rule)
        assert ours.get_rule("t", "s", "r").filter == OwnCorrelationRuleFilter(label="other")


def test_a_namespace_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that change nothing, and those for the health, are answered in time; the client does not wait for a minute."""
    monkeypatch.setattr(app, "READ_WITHIN", 0.2)
    monkeypatch.setattr(health, "WITHIN", 0.2)
    with gateway(tmp_path, NOWHERE) as opened:
        assert opened.ask("GET", "/health") == (503, '{"status":"unhealthy"}')
        for path in ("/q", "/$Resources/Queues", "/$namespaceinfo"):
            status, text = opened.ask("GET", path)
            assert (status, fromstring(text).findtext("Code")) == (503, "503")  # noqa: S314 - our own


async def test_health_is_answered_under_any_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """While more requests than may are half open, and while as many as may are served."""
    monkeypatch.setattr(server_module, "REQUESTS", 2)
    half = b"PUT /q HTTP/1.1\r\nHost: a\r\nAuthorization: SharedAccessSignature sr=q&sig=a&se=9999999999&skn=a\r\n"
    health = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    with InMemoryNamespace("tests") as namespace:
        limits = ConnectionLimits(total=6, by_address=4)
        async with serve(create_app(namespace.connection_string), "127.0.0.1", 0, limits=limits) as server:

            async def ask(request: bytes, source: str = "127.0.0.1") -> tuple[StreamReader, StreamWriter]:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(source, 0))
                writer.write(request)
                return reader, writer

            async def status(request: bytes) -> bytes:
                reader, writer = await ask(request)
                line = await asyncio.wait_for(reader.readline(), 20)
                writer.transport.abort()
                return line.split()[1]

            hanging = [await ask(half) for _ in range(20)] + [await ask(half, "127.0.0.2") for _ in range(20)]
            assert await status(health) == b"200"
            begun = [await ask(half + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n") for _ in range(2)]
            for reader, _ in begun:
                # The application waits for the body.
                assert b"100" in await asyncio.wait_for(reader.readline(), 20)
            assert await status(b"GET /q HTTP/1.1\r\nHost: a\r\n\r\n") == b"503"
            assert await status(health) == b"200"
            for _, writer in hanging + begun:
                writer.transport.abort()


async def test_processes_share_a_port(tmp_path: Path) -> None:
    """If all of them say so."""
    with InMemoryNamespace("tests") as namespace:
        application = create_app(namespace.connection_string)
        async with serve(application, "127.0.0.1", 0, share_port=True) as first:
            async with serve(
                create_app(namespace.connection_string), "127.0.0.1", first.port, share_port=True
            ) as second:
                assert first.port == second.port
            with pytest.raises(OSError, match="choose another address or port"):
                await serve(application, "127.0.0.1", first.port).__aenter__()


async def test_a_cancelled_server_ends(tmp_path: Path) -> None:
    """Also while a client keeps its connection, and one sends a body slowly."""
    with InMemoryNamespace("tests") as namespace:
        opened: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            async with serve(create_app(namespace.connection_string), "127.0.0.1", 0) as server:
                opened.set_result(server.port)
                await asyncio.Event().wait()

        task = asyncio.create_task(run())
        connection = HTTPConnection("127.0.0.1", await opened, timeout=30)
        await asyncio.to_thread(connection.request, "GET", "/health")
        assert (await asyncio.to_thread(connection.getresponse)).status == 200
        reader, slow = await asyncio.open_connection("127.0.0.1", await opened)
        slow.write(b"PUT /q HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n<")
        await slow.drain()
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=10)
        assert done
        with suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 10)
        connection.close()
        slow.close()
        await slow.wait_closed()
