# Generated from facade/kafkabus/_async/kafka/topic_admin.py by tools/generate_blocking.py. Do not edit.
"""Administration of Kafka's topics, without blocking the caller's event loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafkabus._kafka.topic_admin import Topic, Topics
from kafkabus._ledger.operations import Tail
from kafkabus._sync.compat import Pool


class TopicAdmin:
    """A cluster's topics; see ``Topics``, whose blocking calls it makes in threads.

    Args:
        topics: The topics.
        pool: The threads.
    """

    def __init__(self, topics: Topics, pool: Pool) -> None:
        self._topics = topics
        self._pool = pool

    @property
    def has_contact(self) -> bool:
        """Whether a broker was reached."""
        return self._topics.has_contact

    @property
    def asks_together(self) -> bool:
        """Whether ``ends_of`` asks for all logs together; it does not for a while after that failed."""
        return self._topics.asks_together

    def reach(self) -> None:
        """Reach a broker, unless one was reached before; see ``Topics.reach``."""
        self._pool.run(self._topics.reach)

    def close(self) -> None:
        """End Kafka's clients."""
        self._pool.run(self._topics.close)

    def create(self, name: str, partitions: int, config: Mapping[str, str]) -> bool:
        """Create a topic; return False if it existed already; see ``Topics.create``."""
        return self._pool.run(self._topics.create, name, partitions, config)

    def create_entity(self, name: str, partitions: int) -> bool:
        """Create an entity's topic; return False if it existed already; see ``Topics.create_entity``."""
        return self._pool.run(self._topics.create_entity, name, partitions)

    def configure_entity(self, name: str) -> None:
        """Give an entity's topic the settings that it needs; see ``Topics.configure_entity``."""
        self._pool.run(self._topics.configure_entity, name)

    def delete(self, name: str) -> bool:
        """Delete a topic, and return when it is gone; return False if there was none; see ``Topics.delete``."""
        return self._pool.run(self._topics.delete, name)

    def names(self) -> set[str]:
        """Return the names of all topics that the cluster shows this user; see ``Topics.names``."""
        return self._pool.run(self._topics.names)

    def describe(self, name: str, timeout: float | None = None) -> Topic | None:
        """Return the description of a topic, or None if it does not exist; see ``Topics.describe``."""
        return (self.describe_all([name], timeout)).get(name)

    def describe_all(self, names: Sequence[str], timeout: float | None = None) -> dict[str, Topic]:
        """Return the descriptions of those of several topics that exist, by name; see ``Topics.describe_all``."""
        return self._pool.run(self._topics.describe_all, names, timeout)

    def wait_for(self, name: str) -> Topic:
        """Return a topic that was just created, once the brokers serve it; see ``Topics.wait_for``."""
        return self._pool.run(self._topics.wait_for, name)

    def starts(self, name: str, partitions: Iterable[int], timeout: float | None = None) -> dict[int, int]:
        """Return the first offset of each partition's log; see ``Topics.starts``."""
        return self._pool.run(self._topics.starts, name, partitions, timeout)

    def ends(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the committed end of each partition's log; see ``Topics.ends``."""
        return self._pool.run(self._topics.ends, name, partitions)

    def stored_ends(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the end of each partition's log, records of open transactions included; see ``Topics.stored_ends``."""
        return self._pool.run(self._topics.stored_ends, name, partitions)

    def tails(self, name: str, partitions: Iterable[int], timeout: float) -> dict[int, Tail]:
        """Return the committed end of each partition's log, and its leader's epoch; see ``Topics.tails``."""
        return self._pool.run(self._topics.tails, name, partitions, timeout)

    def ends_of(self, topics: Mapping[str, int], *, stored: bool = False) -> dict[str, dict[int, int]]:
        """Return the ends of the logs of several topics, by topic and partition; see ``Topics.ends_of``."""
        return self._pool.run(self._topics.ends_of, topics, stored=stored)

    def ends_of_empty(self, topics: Mapping[str, int]) -> dict[str, dict[int, int]]:
        """Return the ends of the logs of those topics whose logs hold no record; see ``Topics.ends_of_empty``."""
        return self._pool.run(self._topics.ends_of_empty, topics)

    def offsets_at(self, name: str, partitions: Iterable[int], moment_ms: int) -> dict[int, int]:
        """Return each partition's first offset whose record is not older than a moment; see ``Topics.offsets_at``."""
        return self._pool.run(self._topics.offsets_at, name, partitions, moment_ms)

    def first_after(self, name: str, partitions: Iterable[int], moment_ms: int) -> dict[int, tuple[int, int | None]]:
        """Return those offsets, and when their records were stored; see ``Topics.first_after``."""
        return self._pool.run(self._topics.first_after, name, partitions, moment_ms)

    def newest(self, name: str, partitions: Iterable[int]) -> int | None:
        """Return when the newest record was stored, ms since 1970, or None if there is none; see ``Topics.newest``."""
        return self._pool.run(self._topics.newest, name, partitions)

    def delete_records(self, name: str, upto: Mapping[int, int]) -> None:
        """Delete each partition's records below an offset; see ``Topics.delete_records``."""
        self._pool.run(self._topics.delete_records, name, upto)
