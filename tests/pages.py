"""The code of the pages of the documentation, and its output."""

from __future__ import annotations

import contextlib
import io
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def outputs(page: Path, connection_string: str) -> Iterator[tuple[str, str]]:
    """Run a page's blocks one after the other; yield what each prints, and what the page says that it prints.

    Args:
        page: The page.
        connection_string: The namespace that its code uses under this name.
    """
    blocks = _BLOCK.findall(page.read_text(encoding="utf-8"))
    variables: dict[str, object] = {"connection_string": connection_string}
    for (kind, text), (next_kind, next_text) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(text, str(page), "exec"), variables)  # noqa: S102 - the page's own code
            yield printed.getvalue(), next_text if next_kind == "text" else ""
