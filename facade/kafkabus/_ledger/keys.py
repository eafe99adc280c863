"""Redis keys, built in one place.

All ledgers over one log share its hash tag, so a request's keys are in one slot of a Redis cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkabus._ledger.layout import key_names
from kafkabus_mapping.checkpoints import ledger_prefix
from kafkabus_mapping.names import EntityPath


@dataclass(frozen=True, slots=True)
class LedgerKeys:
    """The keys of one ledger; ``layout.py`` says what each holds.

    Attributes:
        prefix: Hash tag and the ledger's name.
        shared: The keys that all clients use, ``meta`` first, in the order of the scripts' ``KEYS``.
        has_sessions: Whether its messages are filed under sessions.
        detects: Whether it detects duplicates.
    """

    prefix: str
    shared: tuple[str, ...]
    has_sessions: bool = False
    detects: bool = False

    @classmethod
    def of(
        cls,
        namespace: str,
        path: EntityPath,
        generation: str,
        partition: int,
        name: str = "queue",
        *,
        sessions: bool = False,
        detects: bool = False,
    ) -> LedgerKeys:
        """Return the keys of the ledger ``name`` (a queue's own, or a subscription's) over one partition's log."""
        prefix = ledger_prefix(namespace, path, generation, partition, name)
        names = key_names(sessions=sessions, detects=detects)
        return cls(prefix, tuple(f"{prefix}:{name}" for name in names), sessions, detects)

    @property
    def meta(self) -> str:
        """The hash that holds cursor, version and counts."""
        return self.shared[0]

    @property
    def properties(self) -> str:
        """The hash that holds changed application properties."""
        return f"{self.prefix}:properties"

    @property
    def anew(self) -> str:
        """The key that exists while the ledger is rebuilt; it disappears if Redis is emptied during that."""
        return f"{self.prefix}:anew"

    def slot(self, client_id: str) -> str:
        """Return the key that remembers a client's last request."""
        return f"{self.prefix}:slot:{client_id}"


def notification_channel(namespace: str, path: EntityPath) -> str:
    """Return the channel on which an entity's ledgers announce that something became available."""
    return f"kafkabus:{namespace}/{path.key}"


EVERYWHERE = "*"
"""The text on upkeep's channel that has it look at all ledgers at once; else it is ``"<within ms> <partition> <entity>"``."""
WHOLE_ENTITY = "-"
"""The value that means all partitions of an entity, and of a topic's subscriptions."""


def upkeep_channel(namespace: str) -> str:
    """Return the channel on which a namespace's ledgers notify upkeep to look; no entity's name begins with a dollar sign."""
    return f"kafkabus:{namespace}/$upkeep"


def receivers_key(namespace: str, path: EntityPath) -> str:
    """Return the key of the sorted set of clients that receive from an entity."""
    return f"{{{namespace}/{path.key}}}:receivers"


def full_key(namespace: str, path: EntityPath, generation: str) -> str:
    """Return the key that says which partitions of a generation of an entity are full."""
    return f"{{{namespace}/{path.key}}}:full:{generation}"


def holes_key(namespace: str, path: EntityPath, generation: str) -> str:
    """Return the key that says how many of each log's offsets that wait to be received hold no message."""
    return f"{{{namespace}/{path.key}}}:holes:{generation}"


def idle_key(namespace: str, path: EntityPath) -> str:
    """Return the key that says since when an entity has not been used."""
    return f"{{{namespace}/{path.key}}}:idle"


def refused_key(namespace: str, path: EntityPath) -> str:
    """Return the key that says since when an entity, because it is not used, refuses all clients."""
    return f"{{{namespace}/{path.key}}}:refused"


def entity_keys(namespace: str, path: EntityPath, generation: str) -> tuple[str, ...]:
    """Return all keys of a generation of an entity beside those of its ledgers."""
    return (
        receivers_key(namespace, path),
        full_key(namespace, path, generation),
        holes_key(namespace, path, generation),
        idle_key(namespace, path),
        refused_key(namespace, path),
    )


def upkeep_key(namespace: str) -> str:
    """Return the key of the sorted set of a namespace's upkeep services."""
    return f"{{{namespace}}}:upkeep"


def clients_key(namespace: str) -> str:
    """Return the key of the sorted set of a namespace's clients: what each says of itself, by when it was heard of."""
    return f"{{{namespace}}}:clients"


def client_details_key(namespace: str) -> str:
    """Return the key of the hash of what a namespace's clients say of themselves: client id to JSON text."""
    return f"{{{namespace}}}:client-details"


def descriptions_key(namespace: str) -> str:
    """Return the key of the hash that caches the descriptions of a namespace's entities."""
    return f"{{{namespace}}}:descriptions"


def description_index_key(namespace: str) -> str:
    """Return the key of the sorted set that counts and lists a namespace's entities; see ``lua/description_index.lua``."""
    return f"{{{namespace}}}:index"


def reservations_key(namespace: str) -> str:
    """Return the key of the sorted set of the entities that are being created; see ``lua/reserve.lua``."""
    return f"{{{namespace}}}:creating"


def deleted_key(namespace: str, name: str) -> str:
    """Return the key that says which record deleted an entity; ``name`` is in lower case."""
    return f"{{{namespace}}}:deleted:{name}"


def turn_key(namespace: str, name: str) -> str:
    """Return the key of the token of the client that changes an entity's description; ``name`` is in lower case."""
    return f"{{{namespace}}}:turn:{name}"


def rights_of(namespace: str) -> str:
    """Return the rights that the Redis user of a namespace's clients needs, as rules of ``ACL SETUSER``."""
    return (
        f"~{{{namespace}}}* ~{{{namespace}/* resetchannels &kafkabus:{namespace}/* "
        "+@read +@write +@scripting +@pubsub +@connection -@dangerous +info +time +asking +cluster|slots"
    )
