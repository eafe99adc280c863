"""Pin the jars that the embedded Kafka needs, with their sizes and checksums: ``python -m tools.pin_kafka``."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from jgo.maven import MavenContext

from kafkabus.embedded.kafka_jars import PINNED, ROOTS


def main() -> None:
    """Resolve and download the jars, and write their list.

    Raises:
        ValueError: The roots need two versions of a jar.
    """
    cache = Path(tempfile.mkdtemp())
    try:
        maven = MavenContext(repo_cache=cache, local_repos=[])
        pinned: list[list[object]] = []
        for coordinates in resolve(maven, ROOTS):
            content = maven.create_dependency(coordinates).artifact.resolve().read_bytes()
            pinned.append([coordinates, len(content), hashlib.sha256(content).hexdigest()])
        PINNED.write_text("[\n" + ",\n".join(f" {json.dumps(one)}" for one in pinned) + "\n]\n")
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def resolve(maven: MavenContext, roots: Iterable[str]) -> list[str]:
    """Return the coordinates of packages and of all that they depend on.

    Each root is resolved separately: resolved together, the versions that one manages for its own tests would apply to the
    others.

    Args:
        maven: The repository.
        roots: The coordinates of the packages.

    Raises:
        ValueError: The roots need two versions of a jar.
    """
    versions: dict[tuple[str, str], str] = {}
    for root in roots:
        direct, others = maven.resolver.resolve([maven.create_dependency(root)])
        for one in (*direct, *others):
            if versions.setdefault((one.groupId, one.artifactId), one.version) != one.version:
                raise ValueError(f"{one.groupId}:{one.artifactId} in two versions: exclude one of them")
    return [f"{group}:{artifact}:{version}" for (group, artifact), version in sorted(versions.items())]


if __name__ == "__main__":
    main()
