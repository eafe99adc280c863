# unasync ships no types; this is the part that tools/generate_blocking.py calls.
from collections.abc import Mapping, Sequence

class Rule:
    def __init__(self, fromdir: str, todir: str, additional_replacements: Mapping[str, str] | None = None) -> None: ...

def unasync_files(fpath_list: Sequence[str], rules: Sequence[Rule]) -> None: ...
