"""SQL filters: what the documented grammar takes, what it says of a message, and how it complains.

Sources: Service Bus's "Subscription Rule SQL Filter Syntax" and "… SQL Action Syntax"; operators bind as C#'s do.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkabus_mapping.codec import Envelope
from kafkabus_mapping.filters.actions import compile_action
from kafkabus_mapping.filters.evaluate import FilterEvaluationError, Subject, compile_condition
from kafkabus_mapping.filters.nodes import Constant, Property, Remove, Set, Value
from kafkabus_mapping.filters.parse import DEEPEST, LONGEST, FilterSyntaxError, parse_action, parse_filter

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
UNKNOWN, ERROR = None, "error"

SUBJECT = Subject(
    Envelope(
        message_id="m-1",
        session_id="s",
        partition_key="s",
        correlation_id="c",
        subject="a bus",
        to="Store5",
        content_type="text/plain",
        time_to_live=timedelta(minutes=5),
        application_properties={
            "Color": "red",
            "empty": "",
            "price": 12,
            "negative": -7,
            "weight": 1.5,
            "huge": 9223372036854775807,
            "beyond": 1 << 70,
            "nan": float("nan"),
            "inf": float("inf"),
            "open": True,
            "shut": False,
            "at": NOON,
            "lasts": timedelta(seconds=90),
            "id": uuid.UUID(int=5),
            "raw": b"\x00",
            "nothing": None,
            "with space": "x",
            "a]b": 1,
            'a"b': 2,
            "percent": "100%",
            "lines": "a\nb",
            "name": "Color",
            "größe": 3,
            "_odd": 4,
        },
    ),
    sequence_number=77,
    enqueued_at=NOON,
    size=10,
    time_to_live=timedelta(minutes=1),
)
PARAMETERS: dict[str, Value] = {
    "@color": "red",
    "@limit": 12,
    "@Noon": NOON.replace(tzinfo=None),
    "@wait": timedelta(seconds=90),
}

HOLDS: dict[str, bool | str | None] = {
    # Constants and comparisons of numbers.
    "1=1": True,
    "1 = 2": False,
    "1 <> 2": True,
    "1 != 1": False,
    "1 < 2": True,
    "2 <= 2": True,
    "3 > 4": False,
    "3 >= 3": True,
    "price = 12": True,
    "price = 12.0": True,
    "price < 12.5": True,
    "weight = 1.5": True,
    "weight = 15E-1": True,
    "weight = .15e1": True,
    "weight = 1.": False,
    "negative = -7": True,
    "negative = - -7": False,
    "negative = +-7": True,
    "huge = 9223372036854775807": True,
    "huge = 9223372036854775807.0": True,
    "9007199254740993 = 9007199254740992.0": True,
    "-9223372036854775808 < 0": True,
    "beyond = 1": ERROR,
    "nan = nan": False,
    "nan <> nan": True,
    "nan < 1": False,
    "inf > 1": True,
    "missing = 1": UNKNOWN,
    "1 = missing": UNKNOWN,
    "missing <> 1": UNKNOWN,
    "missing < 1": UNKNOWN,
    "nothing = 1": UNKNOWN,
    "nothing = NULL": UNKNOWN,
    "NULL = NULL": UNKNOWN,
    # Texts.
    "color = 'red'": True,
    "COLOR = 'red'": True,
    "user.Color = 'red'": True,
    "USER.[color] = 'red'": True,
    "color = 'Red'": False,
    "color <> 'blue'": True,
    "color <> 'red'": False,
    "color = 'it''s'": False,
    "'it''s' = 'it''s'": True,
    "empty = ''": True,
    "color < 'z'": ERROR,
    "color > 'a'": ERROR,
    "color = 1": ERROR,
    "1 = color": ERROR,
    "price = '12'": ERROR,
    # Booleans.
    "open = TRUE": True,
    "open = true": True,
    "open <> FALSE": True,
    "shut = open": False,
    "open > FALSE": ERROR,
    "open = 1": ERROR,
    "price = TRUE": ERROR,
    # Times, durations, UUIDs, bytes.
    "at = @noon": True,
    "at <= @Noon": True,
    "at > @noon": False,
    "at = 1": ERROR,
    "lasts = @wait": True,
    "lasts < @wait": False,
    "lasts = at": ERROR,
    "id = id": True,
    "id <> newid()": True,
    "id < id": ERROR,
    "newid() = newid()": False,
    "raw = raw": ERROR,
    # Parameters.
    "color = @color": True,
    "color = @COLOR": True,
    "price = @limit": True,
    # Names.
    "[with space] = 'x'": True,
    "\"with space\" = 'x'": True,
    "user.[with space] = 'x'": True,
    "[a]]b] = 1": True,
    '"a""b" = 2': True,
    "[AND] = 1": UNKNOWN,
    "größe = 3": True,
    "GRÖSSE = 3": UNKNOWN,
    "[_odd] = 4": True,
    "android = 1": UNKNOWN,
    "nullable = 1": UNKNOWN,
    # System properties.
    "sys.Label = 'a bus'": True,
    "sys.label = 'a bus'": True,
    "SYS.[Label] = 'a bus'": True,
    "sys.Subject = sys.Label": True,
    "sys.MessageId = 'm-1'": True,
    "sys.SessionId = 's'": True,
    "sys.PartitionKey = 's'": True,
    "sys.CorrelationId = 'c'": True,
    "sys.ContentType = 'text/plain'": True,
    "sys.To = 'Store5'": True,
    "sys.ReplyTo = 'x'": UNKNOWN,
    "sys.ReplyToSessionId = 'x'": UNKNOWN,
    "sys.SequenceNumber = 77": True,
    "sys.EnqueuedSequenceNumber = 1": UNKNOWN,
    "sys.DeliveryCount = 0": True,
    "sys.Size = 10": True,
    "sys.EnqueuedTimeUtc = @noon": True,
    "sys.ExpiresAtUtc > @noon": True,
    "sys.TimeToLive < @wait": True,
    "sys.ScheduledEnqueueTimeUtc = @noon": UNKNOWN,
    "sys.DeadLetterSource = 'q'": UNKNOWN,
    "Label = 'a bus'": UNKNOWN,
    # Arithmetic.
    "price + 1 = 13": True,
    "price - 13 = -1": True,
    "price * 2 = 24": True,
    "price / 5 = 2": True,
    "negative / 2 = -3": True,
    "negative / -2 = 3": True,
    "negative % 4 = -3": True,
    "7 % -4 = 3": True,
    "price / 5.0 = 2.4": True,
    "price % 5.0 = 2": True,
    "weight * 2 = 3": True,
    "1 + 2 * 3 = 7": True,
    "(1 + 2) * 3 = 9": True,
    "10 - 4 - 3 = 3": True,
    "16 / 4 / 2 = 2": True,
    "- price = -12": True,
    "-(price) + 12 = 0": True,
    "- -price = 12": True,
    "+price = 12": True,
    "- lasts = lasts": ERROR,
    "- color = 1": ERROR,
    "price / 0 = 1": ERROR,
    "price % 0 = 1": ERROR,
    "price / 0.0 > 1": True,
    "-price / 0.0 < 1": True,
    "0 / 0.0 = 0": False,
    "price % 0.0 = 0": False,
    "inf % 2 = 0": False,
    "5 % inf = 5": True,
    "huge + 1 = 0": ERROR,
    "huge * 2 = 0": ERROR,
    "-9223372036854775808 - 1 = 0": ERROR,
    "-(-9223372036854775807 - 1) = 0": ERROR,
    "-9223372036854775808 / -1 = 0": ERROR,
    "missing + 1 = 1": UNKNOWN,
    "1 * nothing = 1": UNKNOWN,
    "-missing = 1": UNKNOWN,
    "color + 'dish' = 'reddish'": True,
    "color + 1 = 'red1'": ERROR,
    "color - 'd' = 're'": ERROR,
    "open + open = 2": ERROR,
    "at - at = 0": ERROR,
    # AND, OR, NOT.
    "1=1 AND 2=2": True,
    "1=1 and 2=1": False,
    "1=1 AND missing=1": UNKNOWN,
    "1=2 AND missing=1": False,
    "missing=1 AND 1=2": False,
    "missing=1 AND 1=1": UNKNOWN,
    "missing=1 AND missing=2": UNKNOWN,
    "1=1 OR missing=1": True,
    "missing=1 OR 1=1": True,
    "1=2 OR missing=1": UNKNOWN,
    "missing=1 OR 1=2": UNKNOWN,
    "missing=1 OR missing=2": UNKNOWN,
    "1=2 or 2=1": False,
    "NOT 1=1": False,
    "not 1=2": True,
    "NOT missing=1": UNKNOWN,
    "NOT NOT 1=1": True,
    "NOT (1=1 AND 1=2)": True,
    "1=1 OR 1=2 AND 1=3": True,
    "(1=1 OR 1=2) AND 1=3": False,
    "NOT 1=2 AND 1=1": True,
    "1=2 AND color=1": False,
    "color=1 AND 1=2": ERROR,
    "missing=1 AND color=1": ERROR,
    "1=1 OR color=1": True,
    "color=1 OR 1=1": ERROR,
    "missing=1 OR color=1": ERROR,
    "NOT color=1": ERROR,
    "((((1=1))))": True,
    "(price) = (12)": True,
    # IS NULL, EXISTS.
    "missing IS NULL": True,
    "nothing IS NULL": True,
    "color IS NULL": False,
    "color IS NOT NULL": True,
    "missing IS NOT NULL": False,
    "user.color is not null": True,
    "sys.Label IS NULL": False,
    "sys.ReplyTo IS NULL": True,
    "raw IS NOT NULL": True,
    "EXISTS(color)": True,
    "EXISTS (nothing)": True,
    "exists(missing)": False,
    "NOT EXISTS(missing)": True,
    "EXISTS(sys.Label)": True,
    "EXISTS(sys.ReplyTo)": False,
    "EXISTS([with space])": True,
    # IN.
    "color IN ('red', 'blue')": True,
    "color IN ('blue')": False,
    "color NOT IN ('blue', 'green')": True,
    "color NOT IN ('red')": False,
    "color in (@color)": True,
    "price IN (1, 12.0)": True,
    "price IN (6 + 6)": True,
    "missing IN (1)": UNKNOWN,
    "missing NOT IN (1)": UNKNOWN,
    "price IN (1, missing)": UNKNOWN,
    "price IN (12, missing)": True,
    "price IN (missing, 12)": True,
    "price NOT IN (1, missing)": UNKNOWN,
    "price IN (12, 'x')": True,
    "price IN ('x', 12)": ERROR,
    "sys.To IN ('Store5','Store6','Store7') OR StoreId = 'Store8'": True,
    # LIKE.
    "sys.Label LIKE '%bus%'": True,
    "color LIKE 'red'": True,
    "color LIKE 'RED'": False,
    "color LIKE 'r%'": True,
    "color LIKE '%d'": True,
    "color LIKE '%e%'": True,
    "color LIKE '%x%'": False,
    "color LIKE '___'": True,
    "color LIKE '__'": False,
    "color LIKE 'r_d'": True,
    "color LIKE '%'": True,
    "empty LIKE '%'": True,
    "empty LIKE ''": True,
    "empty LIKE '_'": False,
    "color LIKE 'r%r%d'": False,
    "color LIKE 're%ed'": False,
    "color LIKE 'r%%d'": True,
    "color LIKE '%r%e%d%'": True,
    "color LIKE '.*'": False,
    "color NOT LIKE 'b%'": True,
    "color NOT LIKE 'r%'": False,
    "lines LIKE 'a_b'": True,
    "lines LIKE 'a%'": True,
    "lines LIKE 'a'": False,
    r"percent LIKE '100\%' ESCAPE '\'": True,
    r"percent LIKE '1\%' ESCAPE '\'": False,
    "percent LIKE '100!%' escape '!'": True,
    "color LIKE 'r!ed' ESCAPE '!'": True,
    "color LIKE 'red!' ESCAPE '!'": ERROR,
    "color LIKE 'r' + '%'": True,
    "color LIKE name": False,
    "missing LIKE 'a'": UNKNOWN,
    "missing NOT LIKE 'a'": UNKNOWN,
    "color LIKE missing": UNKNOWN,
    "color LIKE 'r%' ESCAPE missing": UNKNOWN,
    "color LIKE 'r%' ESCAPE color": ERROR,
    "color LIKE 'r%' ESCAPE price": ERROR,
    "price LIKE '1%'": ERROR,
    "color LIKE 1": ERROR,
    # Functions.
    "property('Color') = 'red'": True,
    "p('color') = 'red'": True,
    "P(name) = 'red'": True,
    "p('user.color') = 'red'": True,
    "p('sys.Label') = 'a bus'": True,
    "p('missing') = 1": UNKNOWN,
    "p(missing) = 1": UNKNOWN,
    "p(price) = 1": ERROR,
    "p('sys.Nonsense') = 1": ERROR,
    "p('Co' + 'lor') = 'red'": True,
    "p('color') IS NULL": False,
    "p('missing') IS NULL": True,
    "EXISTS(p('nothing'))": True,
    "EXISTS(p('missing'))": False,
    "EXISTS(p('sys.Label'))": True,
    "EXISTS(p(missing))": UNKNOWN,
    "newid() = 1": ERROR,
}
"""What each filter says of the message above: that it matches, that it does not, nothing, or that it cannot be said."""


@pytest.mark.parametrize("text", HOLDS)
def test_a_filter_says_what_is_documented(text: str) -> None:
    """True, false, unknown, or an error of the evaluation."""
    holds = compile_condition(parse_filter(text), PARAMETERS)
    if HOLDS[text] == ERROR:
        with pytest.raises(FilterEvaluationError):
            holds(SUBJECT)
    else:
        assert holds(SUBJECT) is HOLDS[text]


COMPLAINTS = {
    "": ("line 1, column 1", "the text ends"),
    "color": ("line 1, column 6", "the text ends"),
    "1": ("line 1, column 2", "a comparison"),
    "TRUE": ("line 1, column 5", "the text ends"),
    "a = ": ("line 1, column 5", "a name"),
    "a = 1 AND": ("line 1, column 10", "the text ends"),
    "a == 1": ("line 1, column 4", "'='"),
    "a = 1 b": ("line 1, column 7", "the end"),
    "a =\n 1 OR\n OR b = 1": ("line 3, column 2", "'OR'"),
    "a = 'x": ("line 1, column 5", "' ends it"),
    "[a = 1": ("line 1, column 1", "] ends it"),
    '"a = 1': ("line 1, column 1", '" ends it'),
    "[] = 1": ("line 1, column 1", "nothing in it"),
    "a ! 1": ("line 1, column 3", "'!' means nothing"),
    "a = #1": ("line 1, column 5", "'#' means nothing"),
    "(a = 1": ("line 1, column 7", ")"),
    "a = 1)": ("line 1, column 6", "the end"),
    "AND = 1": ("line 1, column 1", "'AND'"),
    "a IN ()": ("line 1, column 7", "')'"),
    "a IN 1": ("line 1, column 6", "("),
    "a IN (1 2)": ("line 1, column 9", ","),
    "a NOT = 1": ("line 1, column 7", "IN or LIKE"),
    "a IS 1": ("line 1, column 6", "NOT or NULL"),
    "1 IS NULL": ("line 1, column 3", "'IS'"),
    "(a) IS NULL": ("line 1, column 5", "'IS'"),
    "a + 1 IS NULL": ("line 1, column 7", "'IS'"),
    "EXISTS a": ("line 1, column 8", "("),
    "EXISTS(1)": ("line 1, column 8", "a name"),
    "EXISTS(newid())": ("line 1", "newid()"),
    "newid() IS NULL": ("line 1", "newid()"),
    "a LIKE": ("line 1, column 7", "a text"),
    "a LIKE 'x' ESCAPE 'ab'": ("line 1, column 12", "one character"),
    "a LIKE 'x' ESCAPE ''": ("line 1, column 12", "one character"),
    "a LIKE 'x' ESCAPE 1": ("line 1, column 12", "one character"),
    "sys.Color = 1": ("line 1, column 1", "no property sys.Color"),
    "sys = 1 AND sys.= 2": ("line 1, column 17", "a name"),
    "other.Color = 1": ("line 1, column 1", "sys or user"),
    "a.b.c = 1": ("line 1, column 4", "'.'"),
    "nonsense(a) = 1": ("line 1, column 1", "newid(), property(name)"),
    "property() = 1": ("line 1, column 1", "property(name)"),
    "newid(1) = 1": ("line 1, column 1", "newid()"),
    "a = 9223372036854775808": ("line 1, column 5", "64-bit"),
    "a = -9223372036854775809": ("line 1, column 6", "64-bit"),
    "a = 1e999": ("line 1, column 5", "more than a number"),
    "a = 1 = 1": ("line 1, column 7", "the end"),
    "a = (b = 1)": ("line 1, column 8", ")"),
    "NOT": ("line 1, column 4", "the text ends"),
    "_a = 1": ("line 1, column 1", "'_' means nothing"),
    "1a = 1": ("line 1, column 2", "'a'"),
    "@ = 1": ("line 1, column 1", "'@' means nothing"),
    "SET a = 1": ("line 1, column 1", "'SET'"),
}


@pytest.mark.parametrize("text", COMPLAINTS)
def test_what_is_no_filter_is_refused_with_its_place(text: str) -> None:
    """Line, column, and what was expected."""
    with pytest.raises(FilterSyntaxError) as caught:
        parse_filter(text)
    place, words = COMPLAINTS[text]
    assert place in str(caught.value)
    assert words in str(caught.value)


def test_the_corpus_is_large_enough() -> None:
    """Each production and each type rule has its cases."""
    assert len(HOLDS) + len(COMPLAINTS) >= 300


def test_long_and_deep_filters_are_refused() -> None:
    """Whatever is within the bounds can be evaluated."""
    with pytest.raises(FilterSyntaxError, match="1024 are allowed"):
        parse_filter("a = " + "1" * LONGEST)
    with pytest.raises(FilterSyntaxError, match="nested"):
        parse_filter("NOT " * (DEEPEST + 2) + "a = 1")
    assert compile_condition(parse_filter("NOT " * (DEEPEST - 2) + "1 = 1"))(SUBJECT) is True
    assert compile_condition(parse_filter("(" * 500 + "1 = 1" + ")" * 500))(SUBJECT) is True
    many = " OR ".join(["a=1"] * 140)
    assert compile_condition(parse_filter(many))(SUBJECT) is None


def test_a_pattern_of_many_wildcards_is_not_tried_over_and_over() -> None:
    """What takes polynomial time with a regular expression."""
    subject = Subject(Envelope(application_properties={"text": "a" * 5_000}))
    assert compile_condition(parse_filter(f"text LIKE '{'%a' * 400}%b'"))(subject) is False


def test_a_parameter_without_a_value_is_named() -> None:
    """When the filter is compiled, before any message comes."""
    with pytest.raises(ValueError, match=r"@missing has no value; given are: @color"):
        compile_condition(parse_filter("a = @missing"), {"@color": 1})


def refused_at(parse: Callable[[str], object], text: str) -> tuple[int, int] | None:
    """Where a text is no filter, or no action."""
    try:
        parse(text)
    except FilterSyntaxError as error:
        return error.line, error.column
    return None


@given(st.text(max_size=60) | st.text(alphabet="aA1 .'\"[]()=<>!+-*/%,@_\nNOTLIKEexists", max_size=80))
def test_no_text_fails_in_another_way(text: str) -> None:
    """It is a filter, or it is refused."""
    for parse in (parse_filter, parse_action):
        place = refused_at(parse, text)
        assert place is None or min(place) >= 1


ACTIONS = {
    "SET a = 1": (Set(Property("a"), Constant(1)),),
    "set a = 1;": (Set(Property("a"), Constant(1)),),
    "REMOVE a": (Remove(Property("a")),),
    "SET a = 1; SET sys.Label = 'x'": (
        Set(Property("a"), Constant(1)),
        Set(Property("Label", system=True), Constant("x")),
    ),
    "SET a = 1, REMOVE user.B": (Set(Property("a"), Constant(1)), Remove(Property("b"))),
    "SET a = 1 REMOVE b;": (Set(Property("a"), Constant(1)), Remove(Property("b"))),
}


@pytest.mark.parametrize("text", ACTIONS)
def test_an_action_is_its_statements(text: str) -> None:
    """In order, with or without what separates them."""
    assert parse_action(text) == ACTIONS[text]


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("SET size = 3", {"Color": "red", "Weight": 1.5, "size": 3}),
        ("SET Size = 3", {"Color": "red", "Weight": 1.5, "Size": 3}),
        ("SET COLOR = 'blue'", {"Color": "blue", "Weight": 1.5}),
        ("SET weight = 2", {"Color": "red", "Weight": 2.0}),
        ("SET weight = 'heavy'", {"Color": "red", "Weight": "heavy"}),
        ("SET color = missing", {"Color": None, "Weight": 1.5}),
        ("SET a = 1; SET a = a + 1", {"Color": "red", "Weight": 1.5, "a": 2}),
        ("SET a = sys.Label + color", {"Color": "red", "Weight": 1.5, "a": "lred"}),
        ("SET a = @p", {"Color": "red", "Weight": 1.5, "a": 9}),
        ("REMOVE color REMOVE missing", {"Weight": 1.5}),
    ],
)
def test_an_action_changes_a_copy(text: str, properties: dict[str, Value]) -> None:
    """Names keep the case that they have; what was not there is added, or left alone."""
    subject = Subject(Envelope(subject="l", application_properties={"Color": "red", "Weight": 1.5}))
    changed = compile_action(parse_action(text), {"@p": 9})(subject)
    assert changed.application_properties == properties
    assert type((changed.application_properties or {}).get("Weight")) is type(properties.get("Weight"))
    assert subject.envelope.application_properties == {"Color": "red", "Weight": 1.5}


def test_an_action_changes_system_properties() -> None:
    """Those that may be: to a text, or to nothing."""
    subject = Subject(Envelope(subject="l", to="t", application_properties={"n": 1}))
    changed = compile_action(parse_action("SET sys.Label = 'new'; SET sys.ReplyTo = sys.To; REMOVE sys.To"))(subject)
    assert changed == Envelope(subject="new", reply_to="t", application_properties={"n": 1})
    assert compile_action(parse_action("SET sys.Subject = missing"))(subject).subject is None
    with pytest.raises(FilterEvaluationError, match=r"sys\.Label takes a text, not an integer"):
        compile_action(parse_action("SET sys.Label = n"))(subject)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "REMOVE or SET"),
        ("a = 1", "REMOVE or SET"),
        ("SET a", "="),
        ("SET a = ", "a name"),
        ("SET a = 1;; ; x", "REMOVE"),
        ("SET a = (b = 1)", ")"),
        ("REMOVE", "a name"),
        ("REMOVE p('a')", "'('"),
        ("SET sys.SequenceNumber = 1", "stays as it is"),
        ("SET sys.SessionId = 'x'", "stays as it is"),
        ("REMOVE sys.PartitionKey", "stays as it is"),
        ("SET sys.Nonsense = 1", "no property"),
    ],
)
def test_what_is_no_action_is_refused(text: str, words: str) -> None:
    """Also where it would change what decides about a message's place."""
    with pytest.raises(FilterSyntaxError) as caught:
        parse_action(text)
    assert words in str(caught.value)
