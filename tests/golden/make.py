"""Write what this version stores into a folder: ``python -m tests.golden.make tests/golden/format-N``.

Run it once, with the first release of a format; the tests of later versions load what it wrote. It starts its own Kafka and
Redis.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kafkabus.embedded import EmbeddedRuntime
from tests.golden.layout import layout
from tests.golden.requests import record
from tests.golden.stored import take
from tests.golden.story import tell

FILE, LAYOUT = "namespace.json", "layout.json"


def main(folder: Path) -> None:
    """Write the files of a format."""
    with EmbeddedRuntime(namespace="golden", upkeep=False) as runtime:
        numbers = tell(runtime.connection_string)
        stored = {"numbers": numbers, **take(runtime.connection_string)}
        stored["requests"] = record(runtime.connection_string)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in ((FILE, stored), (LAYOUT, layout())):
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
