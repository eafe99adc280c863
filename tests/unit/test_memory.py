"""A process that runs for long returns the memory that it does not need any more."""

from __future__ import annotations

import asyncio
import platform
import time

import psutil
import pytest

from kafkabus._runtime import memory

BLOCKS, BLOCK_BYTES = 10_000, 4_000


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries return memory by themselves, or cannot")
def test_freed_memory_is_returned_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory below a block that is in use is returned, too."""
    monkeypatch.setattr(memory, "RETURN_INTERVAL", 0.001)
    blocks = [bytes(BLOCK_BYTES) for _ in range(BLOCKS)]
    in_use = blocks[-1]
    del blocks
    held = psutil.Process().memory_info().rss

    async def wait_until_returned() -> None:
        async with memory.returning_memory():
            deadline = time.monotonic() + 10
            while held - psutil.Process().memory_info().rss < BLOCKS * BLOCK_BYTES / 2:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.001)

    asyncio.run(wait_until_returned())
    assert len(in_use) == BLOCK_BYTES
