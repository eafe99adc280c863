"""Files of entities: what they may hold, what comes of them, and what is refused."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kafkabus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    FalseRuleFilter,
    MessagingSku,
    RetryPolicy,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from kafkabus.management.namespace_export import export_namespace
from kafkabus.management.namespace_file import NamespaceFile, NamespaceFileError
from kafkabus.testing import InMemoryNamespace

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
RULES = [
    {
        "Name": "red",
        "Properties": {
            "FilterType": "Correlation",
            "CorrelationFilter": {"Label": "red", "Properties": {"size": 4}},
        },
    },
    {
        "Name": "cheap",
        "Properties": {
            "FilterType": "Sql",
            "SqlFilter": {"SqlExpression": "price < 10"},
            "Action": {"SqlExpression": "SET cheap = 'yes'"},
        },
    },
]
SUBSCRIPTION = {"Name": "paints", "Properties": {"MaxDeliveryCount": 3, "ForwardTo": ""}, "Rules": RULES}


@pytest.fixture
def administration() -> Iterator[ServiceBusAdministrationClient]:
    with (
        InMemoryNamespace(upkeep=False) as namespace,
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as client,
    ):
        yield client


def file_of(folder: Path, *, queues: Any = (), topics: Any = (), **namespace: object) -> Path:
    content = {"Name": "sbemulatorns", "Queues": queues, "Topics": topics, **namespace}
    file = folder / "config.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [content], "Logging": {"Type": "File"}}}))
    return file


def test_entities_are_created_and_a_second_time_nothing_changes(
    administration: ServiceBusAdministrationClient, tmp_path: Path
) -> None:
    settings = {"LockDuration": "PT30S", "EnablePartitioning": True, "ForwardTo": "paint"}
    topic = {"Name": "paint", "Properties": {"DefaultMessageTimeToLive": "PT1H"}, "Subscriptions": [SUBSCRIPTION]}
    file = NamespaceFile.read(
        file_of(tmp_path, queues=[{"Name": "orders", "Properties": settings}, {"Name": "plain"}], topics=[topic])
    )
    assert file.apply(administration) == [
        "created queue orders",
        "created queue plain",
        "created topic paint",
        "created subscription paint/Subscriptions/paints",
        "created rule red of paint/Subscriptions/paints",
        "created rule cheap of paint/Subscriptions/paints",
    ]
    assert file.apply(administration) == []
    orders = administration.get_queue("orders")
    assert (orders.lock_duration, orders.enable_partitioning) == (timedelta(seconds=30), True)
    assert str(orders.forward_to).endswith("/paint"), "though the topic comes later in the file"
    assert administration.get_topic("paint").default_message_time_to_live == timedelta(hours=1)
    assert administration.get_subscription("paint", "paints").max_delivery_count == 3
    rules = {rule.name: (rule.filter, rule.action) for rule in administration.list_rules("paint", "paints")}
    assert rules == {
        "red": (CorrelationRuleFilter(label="red", properties={"size": 4}), None),
        "cheap": (SqlRuleFilter("price < 10"), SqlRuleAction("SET cheap = 'yes'")),
    }, "and no $Default"


def test_what_differs_is_changed_and_the_rest_stays(
    administration: ServiceBusAdministrationClient, tmp_path: Path
) -> None:
    administration.create_queue("orders", max_delivery_count=5, user_metadata="Ours")
    administration.create_topic("paint")
    administration.create_subscription("paint", "paints")
    administration.create_rule("paint", "paints", "red", filter=SqlRuleFilter("color = 'red'"))
    orders = {"Name": "orders", "Properties": {"MaxDeliveryCount": 6, "LockDuration": "PT1M"}}
    topic = {"Name": "paint", "Subscriptions": [{**SUBSCRIPTION, "Rules": RULES[:1]}]}
    assert NamespaceFile.read(file_of(tmp_path, queues=[orders], topics=[topic])).apply(administration) == [
        "changed rule red of paint/Subscriptions/paints",
        "changed queue orders: MaxDeliveryCount",
        "changed subscription paint/Subscriptions/paints: MaxDeliveryCount",
    ]
    changed = administration.get_queue("orders")
    assert (changed.max_delivery_count, changed.user_metadata) == (6, "Ours")
    rules = {rule.name: rule.filter for rule in administration.list_rules("paint", "paints")}
    assert set(rules) == {"$Default", "red"}, "nothing is deleted of a subscription that existed"


def test_retry_policies_of_queues_and_subscriptions(
    administration: ServiceBusAdministrationClient, tmp_path: Path
) -> None:
    """A file without one leaves a policy as it is."""

    def apply(**policy: object) -> list[str]:
        properties = {"Properties": {"RetryPolicy": policy}} if policy else {}
        topic = {"Name": "paint", "Subscriptions": [{"Name": "paints", **properties}]}
        return NamespaceFile.read(file_of(tmp_path, queues=[{"Name": "orders", **properties}], topics=[topic])).apply(
            administration
        )

    assert len(apply(Kind="Exponential", Delays=["PT1S", "PT5M"])) == 3
    growing = RetryPolicy.exponential(1, 300)
    assert administration.get_queue("orders").retry_policy == growing
    assert administration.get_subscription("paint", "paints").retry_policy == growing
    assert apply(Kind="exponential", Delays=[1, "PT300S"]) == apply() == []
    assert administration.get_queue("orders").retry_policy == growing
    assert apply(Kind="Fixed", Delays=["PT10S"]) == [
        "changed queue orders: RetryPolicy",
        "changed subscription paint/Subscriptions/paints: RetryPolicy",
    ]
    assert administration.get_subscription("paint", "paints").retry_policy == RetryPolicy.fixed(10)


def test_filters_for_all_and_for_no_messages(administration: ServiceBusAdministrationClient, tmp_path: Path) -> None:
    rules = [
        {"Name": "all", "Properties": {"FilterType": "True"}},
        {"Name": "none", "Properties": {"FilterType": "False"}},
    ]
    topic = {"Name": "paint", "Subscriptions": [{"Name": "paints", "Rules": rules}]}
    NamespaceFile.read(file_of(tmp_path, topics=[topic])).apply(administration)
    found = {rule.name: rule.filter for rule in administration.list_rules("paint", "paints")}
    assert found == {"all": TrueRuleFilter(), "none": FalseRuleFilter()}


def test_the_namespace_has_a_tier_and_partitions(
    administration: ServiceBusAdministrationClient, tmp_path: Path
) -> None:
    file = file_of(tmp_path, MessagingSku="Premium", Partitions=4)
    NamespaceFile.read(file).apply(administration)
    properties = administration.get_namespace_properties()
    assert (properties.messaging_sku, properties.partitions) == (MessagingSku.PREMIUM, 4)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"queues": [{"Name": "q", "Properties": {"LockDuratoin": "PT1M"}}]}, "did you mean 'LockDuration'?"),
        ({"queues": [{"Name": "q", "Properties": {"Colour": "red"}}]}, "known are AutoDeleteOnIdle, "),
        ({"queues": [{"name": "q"}]}, "Queues[0].Name: Field required"),
        (
            {"queues": [{"Name": "q", "Properties": {"RetryPolicy": {"Kind": "Linear", "Delays": ["PT1S"]}}}]},
            "Queues[0].Properties: RetryPolicy: kind 'linear' is unknown: choose 'fixed', 'exponential' or 'list'",
        ),
        (
            {"queues": [{"Name": "q", "Properties": {"RetryPolicy": {"Kind": "Fixed", "Delays": ["P8D"]}}}]},
            "Queues[0].Properties: RetryPolicy: a delay is 8 days, 0:00:00: the longest one is 7 days; choose a shorter one",
        ),
        (
            {"queues": [{"Name": "q", "Properties": {"RetryPolicy": "fixed:10s"}}]},
            """RetryPolicy is 'fixed:10s': write {"Kind": "Fixed", "Delays": ["PT10S"]}""",
        ),
        ({"Queuse": []}, "UserConfig.Namespaces[0].Queuse: there is no entry of that name here"),
        (
            {"topics": [{"Name": "t", "Subscriptions": [{"Name": "s", "Rules": [{"Name": "r", "Properties": {}}]}]}]},
            "Topics[0].Subscriptions[0].Rules[0].Properties.FilterType: Field required",
        ),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_place(content: dict[str, Any], said: str, tmp_path: Path) -> None:
    file = file_of(tmp_path, **content)
    with pytest.raises(NamespaceFileError) as refusal:
        NamespaceFile.read(file)
    assert str(refusal.value).startswith(f"{file}: ")
    assert said in str(refusal.value)


def test_a_filter_of_another_type_is_refused(tmp_path: Path) -> None:
    rule = {"Name": "r", "Properties": {"FilterType": "Sql", "CorrelationFilter": {"Label": "x"}}}
    topic = {"Name": "t", "Subscriptions": [{"Name": "s", "Rules": [rule]}]}
    with pytest.raises(NamespaceFileError, match="FilterType 'Sql' and SqlFilter: give both, or neither"):
        NamespaceFile.read(file_of(tmp_path, topics=[topic]))


MICROSOFTS = """\ufeff{
  // The file that Microsoft's emulator comes with has comments.
  "UserConfig": {
    "Namespaces": [
      {
        "Name": "sbemulatorns",
        "Properties": {"IsPremium": false}, /* as programs write it */
        "Queues": null,
        "Topics": [
          {
            "Name": "t",
            "Properties": null,
            "Subscriptions": [
              {
                "Name": "s",
                "Properties": {"LockDuration": "PT1M", "ForwardTo": null, "ForwardDeadLetteredMessagesTo": ""},
                "Rules": [
                  {
                    "Name": "sql",
                    "Properties": {
                      "FilterType": "Sql",
                      "SqlFilter": {
                        "SqlExpression": "a = 1", "CompatibilityLevel": 20, "RequiresPreprocessing": true, "Parameters": null
                      },
                      "CorrelationFilter": null,
                      "Action": {"SqlExpression": "SET b = 2", "CompatibilityLevel": 20},
                    },
                  },
                  {
                    "Name": "correlation",
                    "Properties": {
                      "FilterType": "Correlation",
                      "CorrelationFilter": {"Label": "x", "ContentType": null, "RequiresPreprocessing": false},
                      "Action": {},
                    }
                  },
                ],
              },
            ],
          }
        ]
      },
    ],
    "Logging": {"Type": "File"}
  }
}
"""


def test_files_as_microsoft_and_programs_write_them(
    administration: ServiceBusAdministrationClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning names all entries that have no effect."""
    file = tmp_path / "Config.json"
    file.write_text(MICROSOFTS, encoding="utf-8")
    NamespaceFile.read(file).apply(administration)
    rules = {rule.name: rule for rule in administration.list_rules("t", "s")}
    assert rules.keys() == {"sql", "correlation"}
    assert (rules["sql"].filter, rules["sql"].action) == (SqlRuleFilter("a = 1"), SqlRuleAction("SET b = 2"))
    assert (rules["correlation"].filter, rules["correlation"].action) == (CorrelationRuleFilter(label="x"), None)
    assert administration.get_subscription("t", "s").forward_to is None
    (told,) = [record.getMessage() for record in caplog.records if "no effect" in record.getMessage()]
    names = "Logging, Properties of the namespace, CompatibilityLevel of rules, RequiresPreprocessing of rules"
    assert told == f"{file}: no effect here: {names}"
    assert NamespaceFile.read(file).apply(administration) == []


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            '{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": 5}],}]}} // x',
            "Queues[0].Name: Input should be",
        ),
        ('{"UserConfig": {"Namespaces": [{"Name": "n", "Name": "m",}]}}', "Invalid JSON: trailing comma"),
        ('{"UserConfig": /* {', "Invalid JSON: expected value at line 1"),
        (b"\xff\xfe{\x00}\x00", "it is not UTF-8, at byte 0: save it as UTF-8"),
    ],
)
def test_a_mistake_in_a_file_with_comments_is_named(written: str | bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "Config.json"
    file.write_bytes(written.encode() if isinstance(written, str) else written)
    with pytest.raises(NamespaceFileError) as refusal:
        NamespaceFile.read(file)
    assert str(refusal.value).startswith(f"{file}: ")
    assert said in str(refusal.value)


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"UserConfig": {')
    with pytest.raises(NamespaceFileError, match="Invalid JSON: EOF while parsing an object at line 1 column 16"):
        NamespaceFile.read(file)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"LockDuration": "PT1H"}, "lock_duration=1:00:00"),
        ({"LockDuration": "an hour"}, "lock_duration="),
        ({"RequiresSession": True}, "fixed at creation"),
        ({"ForwardTo": "nowhere"}, "there is no queue or topic 'nowhere'"),
    ],
)
def test_what_the_namespace_refuses_is_told_with_the_entity(
    settings: dict[str, object], said: str, administration: ServiceBusAdministrationClient, tmp_path: Path
) -> None:
    administration.create_queue("orders")
    file = NamespaceFile.read(file_of(tmp_path, queues=[{"Name": "orders", "Properties": settings}]))
    with pytest.raises(NamespaceFileError) as refusal:
        file.apply(administration)
    assert "config.json: queue orders: " in str(refusal.value)
    assert said in str(refusal.value)


def filled(administration: ServiceBusAdministrationClient) -> None:
    """Create entities with settings and rules of all kinds."""
    administration.update_namespace(longest_lock="PT8H")
    administration.create_queue("plain")
    administration.create_queue("a/dead letters".replace(" ", "-"), max_delivery_count=3)
    administration.create_queue(
        "orders",
        enable_partitioning=True,
        requires_session=True,
        lock_duration="PT6H",
        default_message_time_to_live=timedelta(days=3, milliseconds=500),
        retry_policy=RetryPolicy.exponential(first=1, longest=60),
        forward_dead_lettered_messages_to="a/dead-letters",
        authorization_rules=[
            AuthorizationRule(
                type="SharedAccessAuthorizationRule",
                claim_type="SharedAccessKey",
                claim_value="None",
                rights=[AccessRights.LISTEN],
                created_at_utc=NOON,
                modified_at_utc=NOON,
                key_name="all",
                primary_key="c2VjcmV0LWtleQ==",
                secondary_key="b3RoZXItc2VjcmV0LWtleQ==",
            )
        ],
        user_metadata="für alle",
        status="SendDisabled",
    )
    administration.create_topic("news", requires_duplicate_detection=True, unmatched_to="plain")
    administration.create_topic("unused", default_message_time_to_live="PT1H")
    administration.create_subscription("news", "all", forward_to="plain")
    administration.create_subscription("news", "none")
    administration.delete_rule("news", "none", "$Default")
    administration.create_subscription("news", "some", requires_session=True, max_delivery_count=7)
    administration.delete_rule("news", "some", "$Default")
    parameters: dict[str, Any] = {
        "@at": NOON,
        "@price": Decimal("12.50"),
        "@id": uuid.UUID(int=5),
        "@n": 1 << 60,
        "@for": timedelta(1),
    }
    administration.create_rule(
        "news",
        "some",
        "typed",
        filter=SqlRuleFilter("at < @at OR price = @price OR id = @id OR n = @n OR lasts > @for", parameters),
        action=SqlRuleAction("SET price = @price", {"@price": Decimal("1.5")}),
    )
    administration.create_rule(
        "news",
        "some",
        "correlated",
        filter=CorrelationRuleFilter(label="l", to="t", properties={"color": "red", "price": Decimal("12.50")}),
    )
    administration.create_rule("news", "some", "never", filter=FalseRuleFilter())
    administration.create_rule("news", "some", "always", filter=TrueRuleFilter())


def test_what_is_exported_makes_the_same_again(administration: ServiceBusAdministrationClient, tmp_path: Path) -> None:
    """In an empty namespace; in the namespace itself it changes nothing. No key of an authorization rule is in the file."""
    filled(administration)
    exported = export_namespace(administration)
    text = json.dumps(exported)
    assert "c2VjcmV0" not in text
    assert "b3RoZXIt" not in text
    file = tmp_path / "exported.json"
    file.write_text(text)
    assert NamespaceFile.read(file).apply(administration) == []
    with (
        InMemoryNamespace("other", upkeep=False) as namespace,
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as other,
    ):
        assert NamespaceFile.read(file).apply(other)
        again = export_namespace(other)
    again["UserConfig"]["Namespaces"][0]["Name"] = exported["UserConfig"]["Namespaces"][0]["Name"]
    assert again == exported
    (described,) = exported["UserConfig"]["Namespaces"]
    assert described["LongestLock"] == "PT8H"
    assert [queue["Name"] for queue in described["Queues"]] == ["a/dead-letters", "orders", "plain"]
    assert described["Queues"][1]["Properties"]["ForwardDeadLetteredMessagesTo"] == "a/dead-letters"
    news = described["Topics"][0]
    assert [subscription["Name"] for subscription in news["Subscriptions"]] == ["all", "none", "some"]
    assert news["Subscriptions"][1]["DefaultRule"] is False


def test_an_empty_namespace_is_exported(administration: ServiceBusAdministrationClient, tmp_path: Path) -> None:
    """Applied, it changes nothing."""
    exported = export_namespace(administration)
    assert exported["UserConfig"]["Namespaces"][0]["Queues"] == []
    file = tmp_path / "exported.json"
    file.write_text(json.dumps(exported))
    assert NamespaceFile.read(file).apply(administration) == []


def test_a_tagged_value_that_is_none_is_refused(tmp_path: Path) -> None:
    """By its place in the file."""
    rule = {
        "Name": "r",
        "Properties": {"FilterType": "Correlation", "CorrelationFilter": {"Properties": {"price": {"dezimal": "1"}}}},
    }
    file = file_of(tmp_path, topics=[{"Name": "t", "Subscriptions": [{"Name": "s", "Rules": [rule]}]}])
    with pytest.raises(
        NamespaceFileError, match=r"CorrelationFilter\.Properties: no application property has the tag 'dezimal'"
    ):
        NamespaceFile.read(file)
