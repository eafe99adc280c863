"""Claims of the gateway's clients: shared access signatures, their scopes and rights, and the file of policies."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest.mock import patch
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkabus.gateway import attempts, sas_tokens
from kafkabus.gateway.amqp.conditions import AmqpError
from kafkabus.gateway.attempts import FailedAttempts
from kafkabus.gateway.sas_tokens import (
    AccessClaim,
    Policies,
    Policy,
    Right,
    Signature,
    TooManyAttemptsError,
    UnauthorizedError,
    claim_of,
)
from kafkabus.gateway.scopes import LONGEST_AUDIENCE, ScopeError, covers, scope_of_audience, scope_of_path
from kafkabus.gateway.server import connection_claims
from kafkabus_mapping.secret import Secret
from tests.signatures import signature

NOW = 1_800_000_000.0
KEY, SECOND = "the-first-key-of-a-test", "the-second-key-of-a-test"
MANAGE = frozenset(Right)

segments = st.text("abcXYZ019-_.", min_size=1, max_size=6).filter(lambda one: one not in {".", ".."})
paths = st.lists(segments, max_size=4).map("/".join)


def token(
    audience: str = "sb://host.example/orders",
    key: str = KEY,
    *,
    name: str = "app",
    expires: str = str(int(NOW) + 60),
    encoded: str | None = None,
) -> str:
    """Return a token."""
    return signature(audience, name, key, expires=expires, resource=encoded)


def policies(*rights: Right, scope: str = "", keys: tuple[str, ...] = (KEY, SECOND), name: str = "app") -> Policies:
    """Return one policy."""
    return Policies([Policy(name, tuple(map(Secret, keys)), frozenset(rights) or MANAGE, scope)])


def write(path: Path, settings: Mapping[str, object]) -> Path:
    """Write a file of policies in JSON."""
    path.write_text(json.dumps(settings))
    return path


def refused(call: str, known: Policies, path: str = "orders", right: Right = Right.MANAGE) -> str:
    """Return why a token is refused."""
    with pytest.raises(UnauthorizedError) as caught:
        known.check(call, path, NOW, right)
    return str(caught.value)


@pytest.mark.parametrize("key", [KEY, SECOND])
def test_either_key_signs(key: str) -> None:
    """Keys are replaced one after the other."""
    claim = policies().check(token(key=key), "orders", NOW, Right.SEND)
    assert claim == AccessClaim("app", MANAGE, "orders", NOW + 60)


def test_the_audience_is_signed_as_it_came() -> None:
    """Clients encode it differently: in upper or lower case, and more or fewer characters."""
    for encoded in (
        "sb%3A%2F%2Fhost%2Forders",
        "sb%3a%2f%2fhost%2forders",
        "sb://host/orders",
        "https%3a%2f%2fhost%2forders%3fapi-version%3d2024-05",
    ):
        policies().check(token(encoded=encoded), "orders", NOW, Right.MANAGE)


def test_parts_come_in_any_order() -> None:
    """Each has its name."""
    head, _, rest = token().partition(" ")
    policies().check(f"{head} {'&'.join(reversed(rest.split('&')))}", "orders", NOW, Right.SEND)


@given(path=paths, below=paths, host=segments, name=st.text(min_size=1, max_size=9), key=st.text(min_size=1))
def test_a_token_opens_its_audience_and_all_below(path: str, below: str, host: str, name: str, key: str) -> None:
    """The names of entity, host, policy and key do not matter."""
    known = policies(keys=(key,), name=name)
    text = token(f"sb://{host}/{path}", key, name=name)
    assert known.check(text, f"{path}/{below}", NOW, Right.LISTEN).policy == name
    assert known.check(text, path.upper(), NOW, Right.LISTEN).policy == name


UNDERSTOOD = [
    ("sb://host", ""),
    ("SB://HOST/", ""),
    ("https://host:443", ""),
    ("https://[::1]:5300/?api-version=2021-05", ""),
    ("https://host?api-version=2021-05", ""),
    ("amqp://localhost:5672/Orders", "orders"),
    ("amqps://host.example/orders/", "orders"),
    ("sb://host/orders/$management", "orders/$management"),
    ("sb://host/t/Subscriptions/S/$DeadLetterQueue", "t/subscriptions/s/$deadletterqueue"),
    ("https://host/a%2fb?api-version=2024-05", "a/b"),
    ("host/orders", "orders"),
    ("host_1:5671/a/b/", "a/b"),
]
"""Audiences with their scopes, as Azure's SDKs write them; the last two have no scheme."""
MALFORMED = [
    "",
    "x",
    "orders",
    "orders/",
    "/orders",
    "//host/orders",
    "host:5671",
    "host:5671/",
    "host?x",
    "sb:orders",
    "sb:/orders",
    "sb:///orders",
    "sb://",
    "://host/orders",
    "1sb://host",
    "sb://host:/orders",
    "sb://host:port/orders",
    "sb://user@host/orders",
    "sb://host/orders#x",
    "sb://host#orders",
    "sb://host//orders",
    "sb://host/orders//",
    "sb://host//",
    "sb://host/%2F",
    "sb://host/%2Forders",
    "sb://host/.",
    "sb://host/orders/..",
    "sb://host/%2e%2e/orders",
    "sb://host/%20",
    "sb://host/ord%00ers",
    "sb://host/ord\ners",
    "sb://host/\u2028",
    "sb://host/%ff",
    "sb://host/a%252Fb",
    "sb://host/a%zz",
    "sb://host\\orders",
    "sb%3A%2F%2Fhost%2Forders",
    "sb%3A%2F%2Fhost",
    "sb://host%2Forders",
    " sb://host",
    "sb://host\n",
    f"sb://host/{'x' * LONGEST_AUDIENCE}",
]
"""Audiences that no client means."""


@pytest.mark.parametrize(("audience", "scope"), UNDERSTOOD)
def test_an_audience_that_is_understood_has_a_scope(audience: str, scope: str) -> None:
    """The host does not matter, and neither does the case."""
    assert scope_of_audience(audience) == scope
    for encoded in (quote_plus(audience), quote(audience, safe="").lower(), audience.replace("?", "%3f")):
        assert policies().verify(token(encoded=encoded), NOW).scope == scope


@pytest.mark.parametrize("audience", MALFORMED)
def test_an_audience_that_is_not_understood_is_refused(audience: str) -> None:
    """Whether the token has it encoded once, or as it is."""
    with pytest.raises(ScopeError, match=r"malformed|neither"):
        scope_of_audience(audience)
    if audience:
        why = refused(token(audience), policies())
        assert "malformed" in why
        assert len(why) < 500


@pytest.mark.parametrize(
    "sr", ["orders", "orders%2f", "sb%253A%252F%252Fhost", "sb%3Aorders", "x", "%ff", "sb://host/%ff"]
)
def test_a_token_for_an_unknown_audience_opens_nothing(sr: str) -> None:
    """Also not what the policy is for."""
    for scope in ("", "orders"):
        assert "malformed" in refused(token(encoded=sr), policies(scope=scope))


pieces = st.sampled_from(
    [*":/?#%@[].\\ ", "//", "://", "sb", "host", "orders", "%2F", "%252F", "..", "\x00", "\u2028", "5672"]
)


@given(st.lists(pieces, max_size=9).map("".join) | st.text(max_size=40))
def test_only_a_whole_namespace_has_an_empty_scope(audience: str) -> None:
    """It is a scheme and a host, and nothing but a query behind them; all other scopes consist of names."""
    try:
        scope = scope_of_audience(audience)
    except ScopeError:
        return
    if scope:
        assert all(name and name not in {".", ".."} for name in scope.split("/"))
    else:
        assert re.fullmatch(r"[a-zA-Z][\w+.-]*://([\w.-]+|\[[\da-fA-F:.]+\])(:\d+)?/?(\?[^#]*)?", audience, re.ASCII)


@given(path=paths.filter(bool), host=segments, scheme=st.sampled_from(["sb://", "amqps://", "https://", ""]))
def test_a_path_is_found_in_each_form(path: str, host: str, scheme: str) -> None:
    """Encoded once more or not."""
    for audience in (f"{scheme}{host}/{path}", f"{scheme}{host}:1/{path}/", f"{scheme}{host}/{quote(path, safe='')}"):
        assert scope_of_audience(audience) == path.lower()


@given(scope=paths, path=paths)
def test_nothing_beside_a_scope_is_covered(scope: str, path: str) -> None:
    """A path is covered if its first segments are those of the scope."""
    wanted = scope.lower().split("/") if scope else []
    expected = path.lower().split("/")[: len(wanted)] == wanted
    assert covers(scope_of_path(scope), scope_of_path(path)) is expected


@given(st.data())
def test_no_other_text_is_signed(data: st.DataObject) -> None:
    """A token of which any character was changed is refused, or means the same."""
    text = token()
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.characters(exclude_categories=["Cs"])) + text[at + 1 :]
    known = policies()
    try:
        claim = known.verify(changed, NOW)
    except UnauthorizedError:
        return
    assert Signature.parse(changed) == Signature.parse(text)
    assert claim == known.verify(text, NOW)


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """Nothing but the error that says so escapes."""
    for one in (text, f"SharedAccessSignature {text}"):
        with pytest.raises(UnauthorizedError):
            policies().verify(one, NOW)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "missing"),
        ("Bearer abc", "no shared access signature"),
        ("SharedAccessSignature sr=a", "sig, se, skn is missing"),
        ("SharedAccessSignature sr=a&sr=b&sig=c&se=1&skn=d", "malformed"),
        ("SharedAccessSignature sr=a&sig=c&se=soon&skn=d", "se is a number"),
        (token(key="another key"), "InvalidSignature"),
        (token(name="other"), "InvalidSignature"),
        (token(expires=str(int(NOW))), "ExpiredToken"),
        (token("sb://host/order"), "does not cover"),
        (token("sb://host/orders2"), "does not cover"),
    ],
)
def test_refused_tokens(text: str, why: str) -> None:
    """The error has the reason."""
    assert why in refused(text, policies())


def test_refused_rights() -> None:
    """Send, Listen and Manage are separate rights."""
    assert "Manage claim is required" in refused(token(), policies(Right.SEND))
    assert "Listen claim is required" in refused(token(), policies(Right.SEND), right=Right.LISTEN)


def test_a_policy_of_an_entity_opens_no_other() -> None:
    """Not even by a token for the namespace, which opens that entity."""
    known = policies(scope="orders")
    assert known.check(token("sb://host/"), "orders/$management", NOW, Right.LISTEN).scope == "orders"
    assert "does not cover" in refused(token("sb://host/"), known, "invoices")
    assert "does not cover" in refused(token("sb://host/invoices"), known, "invoices")


def test_policies_of_one_name_and_key() -> None:
    """Of those that the token satisfies, one that allows the operation counts."""
    known = Policies(
        [
            Policy("app", (Secret(KEY),), frozenset({Right.LISTEN}), "orders"),
            Policy("app", (Secret(KEY),), frozenset({Right.SEND})),
        ]
    )
    assert known.check(token("sb://host"), "orders", NOW, Right.LISTEN).scope == "orders"
    assert known.check(token("sb://host"), "orders", NOW, Right.SEND).scope == ""


def test_a_claim_ends() -> None:
    """A link is asked again later, by the claim that its connection has."""
    claim = policies().verify(token(), NOW)
    claim.require("Orders/$management", NOW + 59.9, Right.SEND)
    with pytest.raises(UnauthorizedError, match="ExpiredToken"):
        claim.require("orders", NOW + 60, Right.SEND)
    with pytest.raises(UnauthorizedError, match="ExpiredToken"):
        policies().verify(token(), NOW + 60)


KNOWN = Policies(
    [
        Policy("app", (Secret(KEY), Secret(SECOND)), frozenset({Right.SEND}), "orders"),
        Policy("app", (Secret(KEY),), frozenset({Right.LISTEN}), "invoices"),
        Policy("other", (Secret("another-key"),), MANAGE),
    ]
)


def test_a_name_and_a_key_log_in() -> None:
    """All policies that have both count, and do not end."""
    assert KNOWN.log_in("app", KEY, NOW) == (
        AccessClaim("app", frozenset({Right.SEND}), "orders", math.inf),
        AccessClaim("app", frozenset({Right.LISTEN}), "invoices", math.inf),
    )
    assert [one.scope for one in KNOWN.log_in("app", SECOND, NOW)] == ["orders"]


@pytest.mark.parametrize(
    ("name", "key"), [("app", "another-key"), ("other", KEY), ("nobody", KEY), ("app", ""), ("", "")]
)
def test_a_wrong_key_does_not_log_in(name: str, key: str) -> None:
    """The error shows neither name nor key."""
    with pytest.raises(UnauthorizedError, match="no policy of that name") as caught:
        KNOWN.log_in(name, key, NOW)
    assert "another-key" not in str(caught.value)


def fail(known: Policies, door: str, address: str, name: str = "app", now: float = NOW) -> type[UnauthorizedError]:
    """Try a wrong key; return the type of the error."""
    wrong = token(key="wrong", name=name)
    tries: dict[str, Callable[[], object]] = {
        "login": lambda: known.log_in(name, "wrong", now, address),
        "token": lambda: known.verify(wrong, now, address),
        "request": lambda: known.check(wrong, "orders", now, Right.SEND, address=address),
    }
    with pytest.raises(UnauthorizedError) as caught:
        tries[door]()
    return caught.type


@pytest.mark.parametrize("door", ["login", "token", "request"])
def test_wrong_keys_are_limited_by_address(door: str) -> None:
    """Another address, and another policy, are not concerned; when the window is over, the address may try again."""
    known = policies()
    assert {fail(known, door, "10.0.0.1") for _ in range(attempts.MOST_OF_POLICY)} == {UnauthorizedError}
    for other in ("login", "token", "request"):
        assert fail(known, other, "10.0.0.1") is TooManyAttemptsError
    with pytest.raises(TooManyAttemptsError):
        known.log_in("app", KEY, NOW + attempts.WINDOW - 1, "10.0.0.1")
    with pytest.raises(TooManyAttemptsError):
        known.verify(token(), NOW, "10.0.0.1")
    assert fail(known, door, "10.0.0.1", "other") is UnauthorizedError
    assert known.log_in("app", KEY, NOW, "10.0.0.2")
    assert known.log_in("app", KEY, NOW + attempts.WINDOW, "10.0.0.1")


def test_an_address_has_so_many_attempts_with_all_policies() -> None:
    """Names that do not exist are counted as one, so that they cost no memory."""
    names = [f"policy-{number}" for number in range(20)]
    known = Policies([Policy(name, (Secret(KEY),), MANAGE) for name in names])
    for number in range(attempts.MOST_OF_ADDRESS):
        assert fail(known, "login", "::1", names[number % 20]) is UnauthorizedError
    assert fail(known, "login", "::1", "yet-another") is TooManyAttemptsError
    for number in range(50):
        fail(known, "login", "10.0.0.3", f"made-up-{number}")
    assert len(known._failed) == 1 + 20 + 2


def test_failures_take_so_much_memory() -> None:
    """The oldest are forgotten."""
    failed = FailedAttempts()
    for number in range(attempts.MOST_REMEMBERED):
        failed.add(f"10.0.{number >> 8}.{number & 255}", "app", NOW)
    assert len(failed) == attempts.MOST_REMEMBERED


def test_the_addresses_of_one_client_are_one() -> None:
    """A client of IPv6 has 2^64 of them."""
    failed = FailedAttempts()
    for number in range(attempts.MOST_OF_POLICY):
        failed.add(f"2001:db8::{number}", "app", NOW)
    assert failed.are_too_many("2001:db8::ffff:1", "app", NOW)
    assert not failed.are_too_many("2001:db8:0:1::1", "app", NOW)


def test_clients_without_an_ip_address_count_by_what_they_have() -> None:
    """So that one of them does not stop the others."""
    failed = FailedAttempts()
    for _ in range(attempts.MOST_OF_POLICY):
        failed.add("x" * 1_000, "app", NOW)
    assert failed.are_too_many("x" * 1_000, "app", NOW)
    assert not failed.are_too_many("?", "app", NOW)
    assert max(len(source) for source, _ in failed._counts) < 100


def test_a_clock_that_is_set_back_forgets_failures() -> None:
    """An address does not wait for years."""
    known = policies()
    for _ in range(attempts.MOST_OF_POLICY):
        fail(known, "login", "10.0.0.1")
    assert known.log_in("app", KEY, NOW - 1, "10.0.0.1")


def test_a_token_may_come_late_if_a_door_allows_it() -> None:
    """The doors have one clock for failed attempts nevertheless."""
    known = policies()
    known.check(token(), "orders", NOW + 149, Right.SEND, late=90)
    with pytest.raises(UnauthorizedError, match="ExpiredToken"):
        known.check(token(), "orders", NOW + 150, Right.SEND, late=90)
    for _ in range(attempts.MOST_OF_POLICY):
        fail(known, "token", "10.0.0.1")
    with pytest.raises(TooManyAttemptsError):
        known.check(token(), "orders", NOW, Right.SEND, address="10.0.0.1", late=90)
    assert fail(known, "token", "10.0.0.1") is TooManyAttemptsError


def test_without_policies_tokens_are_carried() -> None:
    """Expired ones, other kinds, and none; only a malformed signature is refused."""
    for text in ("", "Bearer abc", token(key="any", expires="1"), token("x", key="any")):
        claim_of(None, text, NOW).require("orders", NOW * 2, Right.MANAGE)
    with pytest.raises(UnauthorizedError, match="missing"):
        claim_of(None, "SharedAccessSignature sr=a", NOW)


TOML = f"""
[[policies]]
name = "RootManageSharedAccessKey"
primary-key = "{KEY}"
secondary-key = "{SECOND}"
rights = ["Manage"]

[[policies]]
name = "app"
primary-key = "{KEY}"
rights = ["Send"]
scope = "Orders/"
"""


def test_policies_come_from_toml(tmp_path: Path) -> None:
    """Manage implies the other rights."""
    file = tmp_path / "policies.toml"
    file.write_text(TOML)
    known = Policies.load(file)
    root = token("sb://host", SECOND, name="RootManageSharedAccessKey")
    assert known.check(root, "x", NOW, Right.LISTEN).rights == MANAGE
    assert known.check(token(), "orders", NOW, Right.SEND).rights == {Right.SEND}


def test_policies_come_from_json(tmp_path: Path) -> None:
    """The names are the same."""
    one = {"name": "app", "primary-key": KEY, "rights": ["Listen"]}
    known = Policies.load(write(tmp_path / "policies.json", {"policies": [one]}))
    assert known.check(token(), "orders", NOW, Right.LISTEN).scope == "orders"


GOOD = {"name": "app", "primary-key": KEY, "rights": ["Listen"]}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "there are none"),
        ({"policies": []}, "there are none"),
        ({"policy": [GOOD]}, "'policy'; did you mean policies"),
        ({"policies": [{**GOOD, "primary_key": "x"}]}, "'primary_key'; did you mean primary-key"),
        ({"policies": [{**GOOD, "name": " "}]}, "policy 1: name"),
        ({"policies": [{**GOOD, "primary-key": 7}]}, "policy 1, 'app': primary-key"),
        ({"policies": [{**GOOD, "secondary-key": ""}]}, "policy 1, 'app': secondary-key"),
        ({"policies": [{**GOOD, "rights": []}]}, "rights=[]"),
        ({"policies": [{**GOOD, "rights": ["Read"]}]}, "rights=['Read']"),
        ({"policies": [{**GOOD, "rights": [["Send"]]}]}, "rights=[['Send']]"),
        ({"policies": [{**GOOD, "scope": "/"}]}, "policy 1, 'app': scope='/'"),
        ({"policies": [{**GOOD, "scope": "sb://host/orders"}]}, "scope='sb://host/orders'"),
        ({"policies": [{**GOOD, "scope": "a%2Fb"}]}, "scope='a%2Fb'"),
        ({"policies": [GOOD, GOOD]}, "two policies 'app'"),
        ({"policies": ["app"]}, "policy 1: a policy has the settings"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, settings: dict[str, object], why: str) -> None:
    """The error names the place and the remedy, and shows no key."""
    with pytest.raises(ValueError, match="policies") as caught:
        Policies.load(write(tmp_path / "policies.json", settings))
    assert why in str(caught.value)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.json", f'{{"primary-key": "{KEY}"'.encode()),
        ("p.json", b'["\xff"]'),
        ("p.json", b"[]"),
        ("p.json", b"[" * 100_000),
        ("p.toml", f'primary-key = "{KEY}'.encode()),
        ("p.toml", b"\xff"),
    ],
)
def test_an_unreadable_file_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    """Neither the error nor its causes show what the file holds."""
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ValueError, match=name) as caught:
        Policies.load(file)
    assert caught.value.__cause__ is None
    assert KEY not in str(caught.value)


def test_no_key_is_shown() -> None:
    """Neither by policies nor by signatures."""
    shown = repr(policies()._policies) + repr(Signature.parse(token()))
    assert KEY not in shown
    assert "signature=" not in shown


# The claims of one client.


SCOPES = ["", "q", "q/x", "q/x/y", "other"]


@given(
    puts=st.lists(
        st.tuples(st.sampled_from(SCOPES), st.sampled_from(SCOPES), st.sampled_from(list(Right)), st.integers(1, 9)),
        max_size=12,
    ),
    path=st.sampled_from([None, "q", "Q/x", "q/x/y/z", "other", "else"]),
    right=st.sampled_from(list(Right)),
    later=st.integers(0, 10),
)
def test_a_client_may_do_what_one_of_its_claims_allows(
    puts: list[tuple[str, str, Right, int]], path: str | None, right: Right, later: int
) -> None:
    """A claim replaces the one for its audience; which of them allows something does not matter."""
    known = Policies([Policy(one.value, (Secret(KEY),), sas_tokens.IMPLIED[one]) for one in Right])
    held, expected = connection_claims.Claims(known, lambda: None), dict[str, AccessClaim]()
    held.close()  # No alarms.
    with patch.object(time, "time", lambda: NOW):
        for audience, scope, granted, lasts in puts:
            text = token(f"sb://host/{scope}", name=granted.value, expires=str(int(NOW) + lasts))
            held.put(f"sb://host/{audience}", text)
            expected[audience] = AccessClaim(granted.value, sas_tokens.IMPLIED[granted], scope, int(NOW) + lasts)
    assert held.kept_bytes == sum(len(audience) + connection_claims.CLAIM_BYTES for audience in expected)
    now = NOW + later

    def allows(claim: AccessClaim) -> bool:
        try:
            claim.require(path, now, right)
        except UnauthorizedError:
            return False
        return True

    with patch.object(time, "time", lambda: now):
        if any(map(allows, expected.values())):
            held.check(path, right)
        else:
            with pytest.raises(AmqpError):
                held.check(path, right)


def test_many_claims_do_not_make_a_check_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may put thousands, and have thousands of links checked after each."""
    held = connection_claims.Claims(policies(Right.SEND), lambda: None)
    held.close()
    monkeypatch.setattr(time, "time", lambda: NOW)
    text = token("sb://host/q/only")
    for number in range(1_000):
        held.put(f"sb://host/{number}", text)
    asked: list[str | None] = []
    require = AccessClaim.require

    def counted(claim: AccessClaim, path: str | None, now: float, *rights: Right) -> None:
        asked.append(path)
        require(claim, path, now, *rights)

    monkeypatch.setattr(AccessClaim, "require", counted)
    held.check("q/only", Right.SEND)
    for path, right in (("q", Right.SEND), ("q/only", Right.LISTEN)):
        with pytest.raises(AmqpError, match="the token is for 'q/only'" if path == "q" else "Listen claim is required"):
            held.check(path, right)
    assert len(asked) == 2
