"""An engine made of two loopback servers: one that serves requests, and one that shows scripted metrics.

The metrics are vLLM's names with totals that follow the laboratory's clock; a fault replaces the answer of the
metrics server and leaves the serving one alone, as a broken exporter or a blocked port would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]

START = 1_800_000_000.0
OUTPUT_TOKENS = 150.0
_BUCKETS = ("0.1", "0.5", "2.5", "+Inf")


@dataclass
class Script:
    """What the engine counts and shows. Rates are per second of the laboratory's time."""

    finish_rate: float = 1.3
    queue_growth: float = 0.0
    running: float = 8.0
    waiting: float = 0.0
    finished: float = 1000.0
    started: float | None = START - 86_400.0
    model: str = "llama-70b"

    def advance(self, seconds: float) -> None:
        self.finished += self.finish_rate * seconds
        self.waiting = max(0.0, self.waiting + self.queue_growth * seconds)

    def body(self) -> bytes:
        """The vLLM body of now."""
        labels = f'engine="0",model_name="{self.model}"'
        finished = int(self.finished)
        lines = [
            f"vllm:num_requests_running{{{labels}}} {self.running}",
            f"vllm:num_requests_waiting{{{labels}}} {self.waiting}",
            f"vllm:kv_cache_usage_perc{{{labels}}} 0.4",
            f"vllm:generation_tokens_total{{{labels}}} {int(self.finished * OUTPUT_TOKENS)}",
            f"vllm:prompt_tokens_total{{{labels}}} {finished * 500}",
            f'vllm:request_success_total{{{labels},finished_reason="stop"}} {finished}',
            *_histogram("vllm:time_to_first_token_seconds", labels, finished, 0.3),
            *_histogram("vllm:request_generation_tokens", labels, finished, OUTPUT_TOKENS),
        ]
        if self.started is not None:
            lines.insert(0, f"process_start_time_seconds {self.started}")
        return ("\n".join(lines) + "\n").encode()


def _histogram(name: str, labels: str, count: int, value: float) -> list[str]:
    """A histogram of `count` observations of one value."""
    buckets = [f'{name}_bucket{{{labels},le="{bound}"}} {count if value <= float(bound) else 0}' for bound in _BUCKETS]
    return [*buckets, f"{name}_sum{{{labels}}} {count * value}", f"{name}_count{{{labels}}} {count}"]


@dataclass
class Engine:
    """`fault` answers scrapes in place of the script while it is set."""

    name: str
    script: Script = field(default_factory=Script)
    fault: Reply | None = None
    serves: Server = field(init=False)
    metrics: Server = field(init=False)

    def __post_init__(self) -> None:
        self.serves = Server(answer(b"{}"))
        self.metrics = Server(self._show)

    async def _show(self, writer: asyncio.StreamWriter) -> None:
        await (self.fault or answer(self.script.body()))(writer)

    async def start(self) -> None:
        await self.serves.start()
        await self.metrics.start()

    async def stop(self) -> None:
        await self.serves.stop()
        await self.metrics.stop()


class Server:
    """One port that answers each request with `reply`; it may be stopped and started again on the same port."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._handle, "127.0.0.1", self.port)
            self.port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await self._reply(writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the other side left, or the laboratory closes
        finally:
            writer.close()
            self._open.discard(task)


def answer(body: bytes, status: str = "200 OK", length: int | None = None) -> Reply:
    """A whole HTTP answer; `length` lies about its size."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        size = len(body) if length is None else length
        head = f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    return reply


async def silent(writer: asyncio.StreamWriter) -> None:
    """Never answers."""
    del writer
    await asyncio.Event().wait()


def dripping(body: bytes, pause_s: float) -> Reply:
    """One byte at a time: alive, and never done in time."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        for position in range(len(body)):
            writer.write(body[position : position + 1])
            await writer.drain()
            await asyncio.sleep(pause_s)

    return reply


def endless(body: bytes) -> Reply:
    """The same body again and again, without an end."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(body)
            await writer.drain()

    return reply
