"""Waiting for something real to happen, with a deadline."""

import asyncio
from collections.abc import Awaitable, Callable


async def eventually(holds: Callable[[], bool | Awaitable[bool]], deadline_s: float = 5.0) -> None:
    """Return as soon as `holds()` is true; fail after `deadline_s`."""
    loop = asyncio.get_running_loop()
    until = loop.time() + deadline_s
    while True:
        answer = holds()
        if answer if isinstance(answer, bool) else await answer:
            return
        assert loop.time() < until, f"not within {deadline_s} s"
        await asyncio.sleep(0.01)
