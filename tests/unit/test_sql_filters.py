"""SQL filters: the documented grammar, the results for a message, and the errors.

Sources: Service Bus's "Subscription Rule SQL Filter Syntax" and "… SQL Action Syntax"; operators bind as C#'s do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from kafkabus_mapping.codec import Envelope
from kafkabus_mapping.filters import segments
from kafkabus_mapping.filters.actions import compile_action
from kafkabus_mapping.filters.evaluate import FilterEvaluationError, MessageSubject, compile_condition
from kafkabus_mapping.filters.nodes import Constant, Property, Remove, Set, Value
from kafkabus_mapping.filters.parse import (
    DEEPEST,
    LONGEST,
    LONGEST_TEXT,
    LOOKUP_DEPTH,
    FilterSyntaxError,
    parse_action,
    parse_filter,
)
from kafkabus_mapping.filters.rules import RuleDescription, SqlActionDescription, compile_rules
from tests.filters import ERROR, HOLDS, NOON, PARAMETERS, SUBJECT


@pytest.mark.parametrize("text", HOLDS)
def test_a_filter_says_what_is_documented(text: str) -> None:
    """The result is true, false, unknown, or an error of the evaluation."""
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
    "a = 'x": ("line 1, column 5", "close it with '"),
    "[a = 1": ("line 1, column 1", "close it with ]"),
    '"a = 1': ("line 1, column 1", 'close it with "'),
    "[] = 1": ("line 1, column 1", "empty or not closed"),
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
    "a = 18446744073709551616": ("line 1, column 5", "64 bits"),
    "a = -9223372036854775809": ("line 1, column 6", "64 bits"),
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
    """The error names line, column, and the expected words."""
    with pytest.raises(FilterSyntaxError) as caught:
        parse_filter(text)
    place, words = COMPLAINTS[text]
    assert place in str(caught.value)
    assert words in str(caught.value)


def test_the_corpus_is_large_enough() -> None:
    """Each production and each type rule has its cases, besides the refused ones."""
    assert len(HOLDS) >= 300


def test_long_and_deep_filters_are_refused() -> None:
    """Every filter within the bounds can be evaluated."""
    with pytest.raises(FilterSyntaxError, match="1024 are allowed"):
        parse_filter("a = " + "1" * LONGEST)
    with pytest.raises(FilterSyntaxError, match="nested"):
        parse_filter("NOT " * (DEEPEST + 2) + "a = 1")
    with pytest.raises(FilterSyntaxError, match="nested"):
        parse_filter("p(" * (DEEPEST // LOOKUP_DEPTH + 1) + "name" + ")" * (DEEPEST // LOOKUP_DEPTH + 1) + " = 1")
    assert compile_condition(parse_filter("NOT " * (DEEPEST - 2) + "1 = 1"))(SUBJECT) is True
    assert compile_condition(parse_filter("(" * 500 + "1 = 1" + ")" * 500))(SUBJECT) is True
    many = " OR ".join(["a=1"] * 140)
    assert compile_condition(parse_filter(many))(SUBJECT) is None


def test_a_pattern_of_many_wildcards_is_not_tried_over_and_over() -> None:
    """A regular expression would take polynomial time for it."""
    subject = MessageSubject(Envelope(application_properties={"text": "a" * 5_000}))
    assert compile_condition(parse_filter(f"text LIKE '{'%a' * 400}%b'"))(subject) is False


@pytest.mark.parametrize(
    "pattern",
    [f"%{'_' * 1000}x%", f"%{'_' * 1000}x", f"%{'a_' * 500}b", f"%{'a_' * 500}b%"],
    ids=["any-before", "any-before-the-end", "at-the-end", "anywhere"],
)
def test_a_text_is_not_compared_with_a_pattern_at_each_place(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That would take a time that grows with the product of both lengths, of which each may be chosen by others."""
    tried: list[int] = []

    def not_found(core: Sequence[str | None]) -> Callable[[str, int], int]:
        tried.append(len(core))
        return lambda _, __: -1

    monkeypatch.setattr(segments, "_try_each_place", not_found)
    subject = MessageSubject(Envelope(application_properties={"text": "a" * 10_000}))
    assert compile_condition(parse_filter(f"text LIKE '{pattern}'"))(subject) is False
    assert not [length for length in tried if length > 128]


def is_like(text: str, pattern: str, escape: str) -> bool:
    """Return whether a text matches a pattern, in the words of the documentation: tried in every way."""
    characters = iter(pattern)
    # A character of the pattern becomes two if it is literal, and one if it is a wildcard.
    parts = ["=" + next(characters) if one == escape else one if one in "%_" else "=" + one for one in characters]
    reached = {0}
    for part in parts:
        if part == "%":
            reached = set(range(min(reached, default=len(text) + 1), len(text) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(text) and (part == "_" or part == "=" + text[at])}
    return len(text) in reached


LETTERS = st.sampled_from("aab\n\U0001f600")
# The latter are longer than the patterns that are tried at each place.
SEGMENTS = st.text(alphabet="aab__!", max_size=12) | st.sampled_from(
    [part * 65 for part in ("a_", "_a", "ab_", "a", "ba_ab")]
)


@given(
    data=st.data(),
    segments=st.lists(SEGMENTS, min_size=1, max_size=5),
    escape=st.sampled_from(["", "!", "%", "_", "a"]),
)
def test_like_agrees_with_trying_in_every_way(data: st.DataObject, segments: list[str], escape: str) -> None:
    """The texts are any; texts made from the pattern often match, and texts with a character less or more may not."""
    pattern = "%".join(segments)
    assume(len(pattern) <= LONGEST)
    made = (
        pattern.replace("%", data.draw(st.text(LETTERS, max_size=3))).replace("_", data.draw(LETTERS)).replace("!", "")
    )
    cut = data.draw(st.integers(0, len(made)))
    text = data.draw(st.sampled_from([made, made[:cut] + made[cut + 1 :], made[:cut] + "b" + made[cut:], made[:cut]]))
    text = data.draw(st.just(text) | st.text(LETTERS, max_size=20))
    suffix = f" ESCAPE '{escape}'" if escape else ""
    subject = MessageSubject(Envelope(application_properties={"text": text, "pattern": pattern}))
    holds = compile_condition(parse_filter(f"text LIKE pattern{suffix}"))
    try:
        expected = is_like(text, pattern, escape)
    except StopIteration:
        with pytest.raises(FilterEvaluationError, match="ends with its escape character"):
            holds(subject)
        return
    event(f"{expected}")
    assert holds(subject) is expected


def test_a_text_that_is_doubled_again_and_again_is_not_made() -> None:
    """An action that does so fails, and the subscription does not get the message."""
    rule = RuleDescription(
        name="doubling",
        action=SqlActionDescription(expression="; ".join(["SET text = text + text"] * 40)),
        created_at=NOON,
    )
    subject = MessageSubject(Envelope(application_properties={"text": "a" * 1000}))
    selected = compile_rules([rule])(subject)
    assert not selected
    assert f"{LONGEST_TEXT} are allowed" in selected.errors["doubling"]


def test_a_parameter_without_a_value_is_named() -> None:
    """The error comes when the filter is compiled, before any message."""
    with pytest.raises(ValueError, match=r"@missing has no value; parameters given: @color"):
        compile_condition(parse_filter("a = @missing"), {"@color": 1})


def refused_at(parse: Callable[[str], object], text: str) -> tuple[int, int] | None:
    """Return the place at which a text is no filter, or no action."""
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
    """The statements run in order, with separators or without."""
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
    """Names keep their case. Missing properties are added, or left alone."""
    subject = MessageSubject(Envelope(subject="l", application_properties={"Color": "red", "Weight": 1.5}))
    changed = compile_action(parse_action(text), {"@p": 9})(subject)
    assert changed.application_properties == properties
    assert type((changed.application_properties or {}).get("Weight")) is type(properties.get("Weight"))
    assert subject.envelope.application_properties == {"Color": "red", "Weight": 1.5}


def test_an_action_changes_system_properties() -> None:
    """Properties that may be changed are set to a text, or to nothing."""
    subject = MessageSubject(Envelope(subject="l", to="t", application_properties={"n": 1}))
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
    """An action is also refused if it would change a property that decides about a message's place."""
    with pytest.raises(FilterSyntaxError) as caught:
        parse_action(text)
    assert words in str(caught.value)
