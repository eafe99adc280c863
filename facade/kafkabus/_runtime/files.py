"""The open files of a process, of which each connection is one."""

from __future__ import annotations

import resource
from contextlib import suppress

MOST = 1 << 20
"""How many files are asked for if the system has no limit, or a higher one."""


def raise_limit() -> int:
    """Let this process have as many open files as the system allows it; return how many.

    Shells and service managers begin with few, 1,024 as a rule, for programs that cannot bear more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # macOS has another limit, below the one that it names.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft
