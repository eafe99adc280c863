"""Records that outlast their log, as a compacted topic holds them: each as JSON, under the place that it had in its log.

The value is ``[[topic, partition, offset], [key, value, [[name, content], …]], [kind, milliseconds]]``, where the last pair is
the record's timestamp, and keys, values and contents of headers are base64 or null.
"""

from __future__ import annotations

import base64
import json
from typing import Final, NamedTuple

ARCHIVE: Final = "archive"
"""The purpose in the name of the topic."""

Place = tuple[str, int, int]
"""Topic, partition and offset."""
Content = tuple["bytes | None", "bytes | None", list[tuple[str, "bytes | None"]]]
"""Key, value and headers."""


class ArchiveKey(NamedTuple):
    """The key of a copy.

    Attributes:
        holder_id: The id of the entity whose message it is; see ``holder_id_of``.
        partition: The partition of its log.
        offset: Its offset there.
    """

    holder_id: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> ArchiveKey:
        """Return the key that ``str`` gave as text."""
        where, _, offset = text.rpartition("#")
        holder_id, _, partition = where.rpartition("/")
        return cls(holder_id, int(partition), int(offset))

    def __str__(self) -> str:
        return f"{self.holder_id}/{self.partition}#{self.offset}"


def write_archived(place: Place, content: Content, stamp: tuple[int, int]) -> bytes:
    """Return the value of the copy of a record.

    Args:
        place: The place of the record.
        content: Its content.
        stamp: Kind and milliseconds of its timestamp.
    """
    key, value, headers = content
    parts = [_encode(key), _encode(value), [(name, _encode(header)) for name, header in headers]]
    return json.dumps([place, parts, stamp], separators=(",", ":")).encode()


def read_archived(text: bytes) -> tuple[Place, Content, tuple[int, int]]:
    """Return place, content and timestamp of a record, of which this is a copy.

    Raises:
        ValueError: The text is no copy.
    """
    (topic, partition, offset), (key, value, headers), (kind, moment) = json.loads(text)
    content = _decode(key), _decode(value), [(name, _decode(header)) for name, header in headers]
    return (topic, partition, offset), content, (kind, moment)


def _encode(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _decode(content: str | None) -> bytes | None:
    return None if content is None else base64.b64decode(content)
