# tokenize_rt ships no types; this is the part that tools/generate_blocking.py calls.
from typing import NamedTuple

class Token(NamedTuple):
    name: str
    src: str
    line: int | None = None
    utf8_byte_offset: int | None = None

def src_to_tokens(src: str) -> list[Token]: ...
