"""Documents of the gateway's administration: what is written, and what is read back."""

from __future__ import annotations

import math
import uuid
from datetime import datetime, timedelta, timezone
from xml.etree.ElementTree import Element, fromstring, tostring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkabus.gateway.administration.atom import (
    ATOM,
    SERVICE_BUS,
    DocumentError,
    Entry,
    description,
    element,
    entry_document,
    error_document,
    feed_document,
    read_description,
)
from kafkabus.gateway.administration.descriptions import QUEUE, TOPIC, Kind, destinations_in
from kafkabus.gateway.administration.failures import failure_of
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
    resource_at,
)
from kafkabus.gateway.administration.rules import describe_rule, read_rule
from kafkabus.gateway.administration.values import (
    FOR_EVER,
    duration_text,
    read_duration,
    read_value,
    value_element,
)
from kafkabus.management import (
    CorrelationRuleFilter,
    EntityAvailabilityStatus,
    EntityStatus,
    FalseRuleFilter,
    QueueProperties,
    QueueRuntimeProperties,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from kafkabus_mapping.entities import FOREVER
from kafkabus_mapping.properties import PropertyValue

NOW = datetime(2030, 1, 31, 12, tzinfo=timezone.utc)
OPEN = '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
CLOSE = "</content></entry>"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.one_of(
    texts.filter(lambda text: text == clean(text)),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False),
    st.binary(max_size=20),
    st.uuids(),
    st.datetimes(timezones=st.sampled_from([None, timezone.utc])),
    st.timedeltas(-timedelta(days=9000), timedelta(days=9000)),
)


def clean(text: str) -> str:
    """Return a text as it comes out of XML."""
    return str(fromstring(tostring(element("a", text), encoding="utf-8")).text or "")  # noqa: S314 - our own


def reread(one: Element) -> Element:
    """Return an element as a client reads it."""
    described = description("RuleDescription")
    described.append(one)
    return read(tostring(described, encoding="unicode"))[0]


def read(described: str) -> Element:
    """Return the description in the body of a request."""
    return read_description(f"{OPEN}{described}{CLOSE}".encode())


def settings(kind: Kind, inner: str) -> dict[str, object]:
    """Return the settings in a description with these elements."""
    return kind.settings_in(read(f'<{kind.element} xmlns="{SERVICE_BUS}">{inner}</{kind.element}>'))


def entry(described: Element | None = None) -> Entry:
    """Return an entry."""
    return Entry("https://h/q", "q", "n", NOW, NOW, element("Nothing") if described is None else described)


@given(values)
def test_values_keep_their_types(value: PropertyValue) -> None:
    """Each type of a property is written with its name and read back."""
    back = read_value(reread(value_element("Value", value)))
    assert (type(back), back) == (type(value), value)


def test_values_of_the_longest_names() -> None:
    """The types that clients know, with a prefix of four letters; and numbers that JSON does not have."""
    kinds: dict[str, PropertyValue] = {
        "string": "a",
        "int": 1,
        "long": 1 << 40,
        "double": 0.5,
        "boolean": True,
        "dateTime": NOW,
        "duration": timedelta(seconds=1),
        "guid": uuid.UUID(int=1),
    }
    assert {value_element("Value", value).get("i:type") for value in kinds.values()} == {
        f"d6p1:{kind}" for kind in kinds
    }
    assert [value_element("Value", value).text for value in (math.inf, -math.inf, math.nan)] == ["INF", "-INF", "NaN"]


@pytest.mark.parametrize("kind", ["int", "boolean", "dateTime", "duration", "guid", "base64Binary", "double", "colour"])
def test_values_that_are_none_of_their_type(kind: str) -> None:
    """The error names the value or the type."""
    one = element("Value", "no!", **{"{http://www.w3.org/2001/XMLSchema-instance}type": f"x:{kind}"})
    with pytest.raises(DocumentError, match=kind):
        read_value(one)


@given(st.timedeltas(timedelta(0), timedelta(days=100_000)))
def test_durations_round_trip(duration: timedelta) -> None:
    """As Azure writes them."""
    assert read_duration(duration_text(duration)) == duration


@pytest.mark.parametrize(
    "text",
    [FOR_EVER, "P10675199DT2H48M5.477581S", "P10675199DT2H48M5.477539S", "P10675200D", "P99999999999999999999D"],
)
def test_for_ever(text: str) -> None:
    """Clients round the longest duration."""
    assert read_duration(text) == FOREVER
    assert duration_text(read_duration(text)) == FOR_EVER


@pytest.mark.parametrize("text", ["", "P", "PT", "30", "P1Y", "P1M", "1h", "PT1.5H", "P1W"])
def test_no_durations(text: str) -> None:
    """Years and months have no length, and a number no unit."""
    with pytest.raises(ValueError, match="ISO 8601"):
        read_duration(text)


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("$namespaceinfo", Namespace()),
        ("/$NamespaceInfo/", Namespace()),
        ("$Resources/queues", Queues()),
        ("$resources/Topics", TopicList()),
        ("$Resources/Hubs", None),
        ("", None),
        ("a", EntityResource("a")),
        ("a/b/c", EntityResource("a/b/c")),
        ("subscriptions", EntityResource("subscriptions")),
        ("a/rules/b", EntityResource("a/rules/b")),
        ("a/b/subscriptions", Subscriptions("a/b")),
        ("a/Subscriptions/s", SubscriptionResource("a", "s")),
        ("a/b/subscriptions/s/RULES", RuleList("a/b", "s")),
        ("a/b/Subscriptions/s/rules/$Default", RuleResource("a/b", "s", "$Default")),
    ],
)
def test_paths(path: str, resource: Resource | None) -> None:
    """Words between names are in either case, and names may have several segments."""
    assert resource_at(path) == resource
    if resource is not None:
        assert resource_at(path_of(resource)) == resource


def test_settings_are_read() -> None:
    """In any order and with any prefix; what only the service knows is left out."""
    described = read(
        f'<x:QueueDescription xmlns:x="{SERVICE_BUS}"><x:UserMetadata>a &amp; b</x:UserMetadata>'
        "<x:SizeInBytes>7</x:SizeInBytes><x:LockDuration>PT30S</x:LockDuration><x:RequiresSession>TRUE</x:RequiresSession>"
        "<x:Newer>1</x:Newer><x:ForwardTo>https://host:1/Some%2FQueue?x=1</x:ForwardTo><x:Status/></x:QueueDescription>"
    )
    assert QUEUE.settings_in(described) == {
        "user_metadata": "a & b",
        "lock_duration": timedelta(seconds=30),
        "requires_session": True,
        "forward_to": "Some/Queue",
        "status": "",
    }
    assert destinations_in(described) == {"ForwardTo": "Some/Queue"}


def test_elements_that_are_nothing_are_left_out() -> None:
    """Some clients write them for settings that they do not set."""
    instance = "http://www.w3.org/2001/XMLSchema-instance"
    assert settings(TOPIC, f'<Status xmlns:i="{instance}" i:nil="true"/><SupportOrdering>0</SupportOrdering>') == {
        "support_ordering": False
    }


@pytest.mark.parametrize(
    "inner",
    [
        "<MaxDeliveryCount>many</MaxDeliveryCount>",
        "<MaxDeliveryCount>1.5</MaxDeliveryCount>",
        f"<MaxDeliveryCount>{'9' * 5000}</MaxDeliveryCount>",
        "<LockDuration>30</LockDuration>",
        "<RequiresSession>maybe</RequiresSession>",
        (
            "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Read</AccessRights></Rights></AuthorizationRule>"
            "</AuthorizationRules>"
        ),
    ],
)
def test_values_that_break_a_rule(inner: str) -> None:
    """The error names the element."""
    with pytest.raises(DocumentError, match=inner[1:10]):
        settings(QUEUE, inner)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<entry>",
        b"<entry/>",
        b"\xff\xfe",
        b'<?xml version="1.0" encoding="no-such-encoding"?><a/>',
        b"<feed xmlns='http://www.w3.org/2005/Atom'><content><a/></content></feed>",
        f"{OPEN}{CLOSE}".encode(),
        f"{OPEN}<a/><b/>{CLOSE}".encode(),
        b'<!DOCTYPE a [<!ENTITY b "c">]><entry xmlns="http://www.w3.org/2005/Atom"><content>&b;</content></entry>',
        b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><entry/>',
    ],
)
def test_bodies_that_are_no_entries(body: bytes) -> None:
    """Entities of XML are refused before they are resolved."""
    with pytest.raises(DocumentError):
        read_description(body)


@pytest.mark.parametrize(
    "declared",
    ['<!DOCTYPE a [<!ENTITY b "c">]>', '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/hostname">]>', "<!DOCTYPE entry>"],
)
def test_entities_are_refused_in_entries_as_well(declared: str) -> None:
    """A document type is no part of what clients send."""
    inner = f'<QueueDescription xmlns="{SERVICE_BUS}"><UserMetadata>{"&b;" * ("ENTITY" in declared)}</UserMetadata>'
    with pytest.raises(DocumentError, match="document type"):
        read_description(f"{declared}{OPEN}{inner}</QueueDescription>{CLOSE}".encode())


QUEUE_PROPERTIES = QueueProperties(
    "q",
    enable_partitioning=True,
    lock_duration=timedelta(seconds=30),
    max_delivery_count=10,
    max_size_in_megabytes=16384,
    requires_session=False,
    requires_duplicate_detection=False,
    duplicate_detection_history_time_window=timedelta(minutes=10),
    default_message_time_to_live=FOREVER,
    dead_lettering_on_message_expiration=False,
    auto_delete_on_idle=FOREVER,
    enable_batched_operations=True,
    status=EntityStatus.ACTIVE,
    availability_status=EntityAvailabilityStatus.AVAILABLE,
    user_metadata="",
    forward_to=None,
    forward_dead_lettered_messages_to="sb://host/d",
    max_message_size_in_kilobytes=256,
    enable_express=False,
    authorization_rules=[],
    settled_retention=timedelta(days=1),
)


def test_a_queue_as_azure_writes_it() -> None:
    """The order of the elements, the prefixes and the counts' namespace are what clients look for."""
    counts = QueueRuntimeProperties(
        name="q",
        created_at_utc=NOW,
        updated_at_utc=NOW,
        accessed_at_utc=NOW,
        total_message_count=3,
        active_message_count=1,
        dead_letter_message_count=2,
    )
    written = tostring(QUEUE.describe(QUEUE_PROPERTIES, counts), encoding="unicode")
    time = "2030-01-31T12:00:00.000000Z"
    assert written == (
        f'<QueueDescription xmlns="{SERVICE_BUS}" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">'
        "<LockDuration>PT30S</LockDuration><MaxSizeInMegabytes>16384</MaxSizeInMegabytes>"
        "<RequiresDuplicateDetection>false</RequiresDuplicateDetection><RequiresSession>false</RequiresSession>"
        f"<DefaultMessageTimeToLive>{FOR_EVER}</DefaultMessageTimeToLive>"
        "<DeadLetteringOnMessageExpiration>false</DeadLetteringOnMessageExpiration>"
        "<DuplicateDetectionHistoryTimeWindow>PT10M</DuplicateDetectionHistoryTimeWindow>"
        "<MaxDeliveryCount>10</MaxDeliveryCount><EnableBatchedOperations>true</EnableBatchedOperations>"
        "<SizeInBytes>0</SizeInBytes><MessageCount>3</MessageCount><IsAnonymousAccessible>false</IsAnonymousAccessible>"
        "<AuthorizationRules /><Status>Active</Status>"
        f"<CreatedAt>{time}</CreatedAt><UpdatedAt>{time}</UpdatedAt><AccessedAt>{time}</AccessedAt>"
        "<SupportOrdering>true</SupportOrdering>"
        '<CountDetails xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus">'
        "<d2p1:ActiveMessageCount>1</d2p1:ActiveMessageCount><d2p1:DeadLetterMessageCount>2</d2p1:DeadLetterMessageCount>"
        "<d2p1:ScheduledMessageCount>0</d2p1:ScheduledMessageCount><d2p1:TransferMessageCount>0</d2p1:TransferMessageCount>"
        "<d2p1:TransferDeadLetterMessageCount>0</d2p1:TransferDeadLetterMessageCount></CountDetails>"
        f"<AutoDeleteOnIdle>{FOR_EVER}</AutoDeleteOnIdle><EnablePartitioning>true</EnablePartitioning>"
        "<EntityAvailabilityStatus>Available</EntityAvailabilityStatus>"
        "<ForwardDeadLetteredMessagesTo>sb://host/d</ForwardDeadLetteredMessagesTo><EnableExpress>false</EnableExpress>"
        "<MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes></QueueDescription>"
    )


RULES = [
    RuleProperties("r", filter=TrueRuleFilter(), action=None, created_at_utc=NOW),
    RuleProperties("r", filter=FalseRuleFilter(), action=None, created_at_utc=NOW),
    RuleProperties(
        "r",
        filter=SqlRuleFilter("a = @p AND b < 7", {"@p": "x & y", "@q": 1 << 40}),
        action=SqlRuleAction("SET a = @p", {"@p": NOW}),
        created_at_utc=NOW,
    ),
    RuleProperties(
        "r",
        filter=CorrelationRuleFilter(
            correlation_id="1",
            message_id="2",
            to="3",
            reply_to="4",
            label="5",
            session_id="6",
            reply_to_session_id="7",
            content_type="8",
            properties={"a": True, "b": 1.5, "c": "d"},
        ),
        action=SqlRuleAction("REMOVE a"),
        created_at_utc=NOW,
    ),
]


@pytest.mark.parametrize("rule", RULES)
def test_rules_round_trip(rule: RuleProperties) -> None:
    """Each kind of filter and action."""
    written = tostring(describe_rule(rule), encoding="unicode")
    assert read_rule(read(written), "other", NOW) == rule
    assert "<Action " in written


@pytest.mark.parametrize(("what", "kind"), [("Filter", "DateFilter"), ("Filter", ""), ("Action", "SendRuleAction")])
def test_unknown_kinds_of_rules(what: str, kind: str) -> None:
    """The error lists those that there are."""
    described = description("RuleDescription")
    described.append(element(what, **{"i:type": kind}))
    with pytest.raises(DocumentError, match="choose from"):
        read_rule(read(tostring(described, encoding="unicode")), "r", NOW)


def test_feeds_name_the_next_page() -> None:
    """Python's client takes the second of exactly two links."""
    for following, links in ((None, ["self"]), ("https://h/next?a=1&b=2", ["self", "next"])):
        feed = fromstring(feed_document("Queues", "https://h/", [entry(), entry()], following))  # noqa: S314 - our own
        assert [one.get("rel") for one in feed.findall(f"{{{ATOM}}}link")] == links
        assert [one.findtext(f"{{{ATOM}}}title") for one in feed.findall(f"{{{ATOM}}}entry")] == ["q", "q"]


@given(texts)
def test_every_text_makes_a_document(text: str) -> None:
    """A character that XML cannot hold would make a list of entities unreadable."""
    for document in (error_document(400, text), entry_document(entry(element("UserMetadata", text)))):
        fromstring(document)  # noqa: S314 - our own


def test_unexpected_errors_are_not_shown() -> None:
    """Their texts are for the operator."""
    failure = failure_of(ValueError("a secret place"))
    assert (failure.status, failure.ours) == (500, True)
    assert "secret" not in failure.detail
