"""The index of a client's nodes."""

from __future__ import annotations

from kafkabus.gateway.server.index import Index


def test_the_first_with_the_first_key_is_found() -> None:
    """One that was removed is found no more, and leaves nothing."""
    index = Index[str]()
    index.add("one", ["a", ("n", 1)])
    index.add("two", ["a", "b"])
    assert index.first(["x", "a", "b"]) == "one"
    assert index.first(["b", "a"]) == "two"
    index.remove("one", ["a", ("n", 1)])
    index.remove("one", ["a", "unknown"])
    assert (index.first([("n", 1), "a"]), index.first([("n", 1)])) == ("two", None)
    index.remove("two", ["a", "b"])
    assert not index._by_key
