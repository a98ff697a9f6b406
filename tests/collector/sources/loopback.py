"""Small servers for tests: each answers one connection after the other with what the test wrote down."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

Reply = Callable[[dict[str, str], asyncio.StreamWriter], Awaitable[None]]

LIVE = Path(__file__).parents[2] / "fixtures" / "live"
BUSY = (LIVE / "vllm-0.32-busy.prom").read_bytes()


class Clock:
    """Time that only the test moves."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def serving(reply: Reply) -> AsyncIterator[int]:
    """Port of a server that reads a request's head and lets `reply` write; every connection ends with it."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            fields = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
            fields[":path"] = head[0].split(" ")[1]
            await reply(fields, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await server.wait_closed()
        await asyncio.sleep(0)


def answer(body: bytes, status: str = "200 OK", *fields: str) -> Reply:
    """A whole HTTP answer."""

    async def reply(_: dict[str, str], writer: asyncio.StreamWriter) -> None:
        lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *fields)
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()

    return reply


def counted(body: bytes, tokens: float, started: float | None = None) -> bytes:
    """The body with another total of generated tokens, and another process start."""
    changed = re.sub(rb"(?m)^(vllm:generation_tokens_total\S*) .*$", rb"\1 %f" % tokens, body)
    if started is not None:
        changed = re.sub(rb"(?m)^process_start_time_seconds .*$", b"process_start_time_seconds %f" % started, changed)
    return changed
