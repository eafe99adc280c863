"""Administration of Kafka's topics, without blocking the caller's event loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafkabus._async.compat import Pool
from kafkabus._kafka.topic_admin import Topic, Topics
from kafkabus._ledger.operations import Tail


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

    async def reach(self) -> None:
        """Reach a broker, unless one was reached before; see ``Topics.reach``."""
        await self._pool.run(self._topics.reach)

    async def close(self) -> None:
        """End Kafka's clients."""
        await self._pool.run(self._topics.close)

    async def create(self, name: str, partitions: int, config: Mapping[str, str]) -> bool:
        """Create a topic; return False if it existed already; see ``Topics.create``."""
        return await self._pool.run(self._topics.create, name, partitions, config)

    async def create_entity(self, name: str, partitions: int) -> bool:
        """Create an entity's topic; return False if it existed already; see ``Topics.create_entity``."""
        return await self._pool.run(self._topics.create_entity, name, partitions)

    async def configure_entity(self, name: str) -> None:
        """Give an entity's topic the settings that it needs; see ``Topics.configure_entity``."""
        await self._pool.run(self._topics.configure_entity, name)

    async def delete(self, name: str) -> bool:
        """Delete a topic, and return when it is gone; return False if there was none; see ``Topics.delete``."""
        return await self._pool.run(self._topics.delete, name)

    async def names(self) -> set[str]:
        """Return the names of all topics that the cluster shows this user; see ``Topics.names``."""
        return await self._pool.run(self._topics.names)

    async def describe(self, name: str, timeout: float | None = None) -> Topic | None:
        """Return the description of a topic, or None if it does not exist; see ``Topics.describe``."""
        return (await self.describe_all([name], timeout)).get(name)

    async def describe_all(self, names: Sequence[str], timeout: float | None = None) -> dict[str, Topic]:
        """Return the descriptions of those of several topics that exist, by name; see ``Topics.describe_all``."""
        return await self._pool.run(self._topics.describe_all, names, timeout)

    async def wait_for(self, name: str) -> Topic:
        """Return a topic that was just created, once the brokers serve it; see ``Topics.wait_for``."""
        return await self._pool.run(self._topics.wait_for, name)

    async def starts(self, name: str, partitions: Iterable[int], timeout: float | None = None) -> dict[int, int]:
        """Return the first offset of each partition's log; see ``Topics.starts``."""
        return await self._pool.run(self._topics.starts, name, partitions, timeout)

    async def ends(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the committed end of each partition's log; see ``Topics.ends``."""
        return await self._pool.run(self._topics.ends, name, partitions)

    async def stored_ends(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the end of each partition's log, records of open transactions included; see ``Topics.stored_ends``."""
        return await self._pool.run(self._topics.stored_ends, name, partitions)

    async def tails(self, name: str, partitions: Iterable[int], timeout: float) -> dict[int, Tail]:
        """Return the committed end of each partition's log, and its leader's epoch; see ``Topics.tails``."""
        return await self._pool.run(self._topics.tails, name, partitions, timeout)

    async def ends_of(self, topics: Mapping[str, int], *, stored: bool = False) -> dict[str, dict[int, int]]:
        """Return the ends of the logs of several topics, by topic and partition; see ``Topics.ends_of``."""
        return await self._pool.run(self._topics.ends_of, topics, stored=stored)

    async def ends_of_empty(self, topics: Mapping[str, int]) -> dict[str, dict[int, int]]:
        """Return the ends of the logs of those topics whose logs hold no record; see ``Topics.ends_of_empty``."""
        return await self._pool.run(self._topics.ends_of_empty, topics)

    async def offsets_at(self, name: str, partitions: Iterable[int], moment_ms: int) -> dict[int, int]:
        """Return each partition's first offset whose record is not older than a moment; see ``Topics.offsets_at``."""
        return await self._pool.run(self._topics.offsets_at, name, partitions, moment_ms)

    async def first_after(
        self, name: str, partitions: Iterable[int], moment_ms: int
    ) -> dict[int, tuple[int, int | None]]:
        """Return those offsets, and when their records were stored; see ``Topics.first_after``."""
        return await self._pool.run(self._topics.first_after, name, partitions, moment_ms)

    async def newest(self, name: str, partitions: Iterable[int]) -> int | None:
        """Return when the newest record was stored, ms since 1970, or None if there is none; see ``Topics.newest``."""
        return await self._pool.run(self._topics.newest, name, partitions)

    async def delete_records(self, name: str, upto: Mapping[int, int]) -> None:
        """Delete each partition's records below an offset; see ``Topics.delete_records``."""
        await self._pool.run(self._topics.delete_records, name, upto)
