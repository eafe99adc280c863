"""Claims of the gateway's clients: shared access signatures, their scopes and rights, and the file of policies."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkabus.gateway.claims import (
    Claim,
    Policies,
    Policy,
    Right,
    Signature,
    UnauthorizedError,
    claim_of,
    covers,
    scope_of,
)
from kafkabus_mapping.secret import Secret

NOW = 1_800_000_000.0
KEY, SECOND = "the-first-key-of-a-test", "the-second-key-of-a-test"
MANAGE = frozenset(Right)

segments = st.text("abcXYZ019-_.", min_size=1, max_size=6)
paths = st.lists(segments, max_size=4).map("/".join)


def token(
    audience: str = "sb://host.example/orders",
    key: str = KEY,
    *,
    name: str = "app",
    expires: str = str(int(NOW) + 60),
    encoded: str | None = None,
) -> str:
    """Return a token, signed as the documentation of the service says."""
    sr = quote_plus(audience) if encoded is None else encoded
    digest = hmac.new(key.encode(), f"{sr}\n{expires}".encode(), hashlib.sha256).digest()
    sig = quote(base64.b64encode(digest), safe="")
    return f"SharedAccessSignature sr={sr}&sig={sig}&se={expires}&skn={quote(name, safe='')}"


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
        known.check(call, path, right, NOW)
    return str(caught.value)


@pytest.mark.parametrize("key", [KEY, SECOND])
def test_either_key_signs(key: str) -> None:
    """Keys are replaced one after the other."""
    claim = policies().check(token(key=key), "orders", Right.SEND, NOW)
    assert claim == Claim("app", MANAGE, "orders", NOW + 60)


def test_the_audience_is_signed_as_it_came() -> None:
    """Clients encode it differently: in upper or lower case, and more or fewer characters."""
    for encoded in (
        "sb%3A%2F%2Fhost%2Forders",
        "sb%3a%2f%2fhost%2forders",
        "sb://host/orders",
        "https%3a%2f%2fhost%2forders%3fapi-version%3d2024-05",
    ):
        policies().check(token(encoded=encoded), "orders", Right.MANAGE, NOW)


def test_parts_come_in_any_order() -> None:
    """Each has its name."""
    head, _, rest = token().partition(" ")
    policies().check(f"{head} {'&'.join(reversed(rest.split('&')))}", "orders", Right.SEND, NOW)


@given(path=paths, below=paths, host=segments, name=st.text(min_size=1, max_size=9), key=st.text(min_size=1))
def test_a_token_opens_its_audience_and_all_below(path: str, below: str, host: str, name: str, key: str) -> None:
    """The names of entity, host, policy and key do not matter."""
    known = policies(keys=(key,), name=name)
    text = token(f"sb://{host}/{path}", key, name=name)
    assert known.check(text, f"{path}/{below}", Right.LISTEN, NOW).policy == name
    assert known.check(text, path.upper(), Right.LISTEN, NOW).policy == name


@given(scope=paths, path=paths)
def test_nothing_beside_a_scope_is_covered(scope: str, path: str) -> None:
    """A path is covered if its first segments are those of the scope."""
    wanted = scope.lower().split("/") if scope else []
    expected = path.lower().split("/")[: len(wanted)] == wanted
    assert covers(scope_of(scope, is_path=True), scope_of(path, is_path=True)) is expected


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
    """The client is told why."""
    assert why in refused(text, policies())


def test_refused_rights() -> None:
    """Sending and receiving are rights of their own."""
    assert "Manage claim is required" in refused(token(), policies(Right.SEND))
    assert "Listen claim is required" in refused(token(), policies(Right.SEND), right=Right.LISTEN)


def test_a_policy_of_an_entity_opens_no_other() -> None:
    """Not even by a token for the namespace, which opens that entity."""
    known = policies(scope="orders")
    assert known.check(token("sb://host/"), "orders/$management", Right.LISTEN, NOW).scope == "orders"
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
    assert known.check(token("sb://host"), "orders", Right.LISTEN, NOW).scope == "orders"
    assert known.check(token("sb://host"), "orders", Right.SEND, NOW).scope == ""


def test_a_claim_ends() -> None:
    """A link is asked again later, by the claim that its connection has."""
    claim = policies().verify(token(), NOW)
    claim.require(Right.SEND, "Orders/$management", NOW + 59.9)
    with pytest.raises(UnauthorizedError, match="ExpiredToken"):
        claim.require(Right.SEND, "orders", NOW + 60)
    with pytest.raises(UnauthorizedError, match="ExpiredToken"):
        policies().verify(token(), NOW + 60)


def test_without_policies_tokens_are_carried() -> None:
    """Expired ones, other kinds, and none; only a malformed signature is refused."""
    for text in ("", "Bearer abc", token(key="any", expires="1")):
        claim_of(None, text, NOW).require(Right.MANAGE, "orders", NOW * 2)
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
    assert known.check(root, "x", Right.LISTEN, NOW).rights == MANAGE
    assert known.check(token(), "orders", Right.SEND, NOW).rights == {Right.SEND}


def test_policies_come_from_json(tmp_path: Path) -> None:
    """The names are the same."""
    one = {"name": "app", "primary-key": KEY, "rights": ["Listen"]}
    known = Policies.load(write(tmp_path / "policies.json", {"policies": [one]}))
    assert known.check(token(), "orders", Right.LISTEN, NOW).scope == "orders"


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
