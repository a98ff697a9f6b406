"""Scraping that goes well: what is asked for, how often, and what the frame says."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from collector.model import SignalState
from collector.sources.record import TargetRecord
from collector.sources.scrape import ScrapeSettings, ScrapeSource
from collector.sources.targets import FileTargets, StaticTargets, Target, target
from tests.collector.sources.loopback import BUSY, Clock, answer, serving

NO_JITTER = ScrapeSettings(interval_s=1.0, jitter=0.0)


class Listed:
    """A target list that the test changes."""

    warnings: tuple[str, ...] = ()

    def __init__(self, *targets: Target) -> None:
        self.now: list[Target] = list(targets)

    def targets(self) -> Sequence[Target]:
        return self.now


async def test_asks_for_the_text_format_with_the_token_of_now(tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []

    async def note(fields: dict[str, str], writer: asyncio.StreamWriter) -> None:
        seen.append(fields)
        await answer(BUSY)(fields, writer)

    token = tmp_path / "token"
    token.write_text("first\n")
    async with serving(note) as port:
        one = target(f"http://127.0.0.1:{port}/custom", name="e0", token_file=token)
        source = ScrapeSource(StaticTargets([one]), NO_JITTER, Clock())
        await source.collect(0.0)
        token.write_text("second")
        await source.collect(1.0)
        await source.close()
    assert [fields["Authorization"] for fields in seen] == ["Bearer first", "Bearer second"]
    assert seen[0]["Accept"].startswith("text/plain;version=0.0.4")
    assert seen[0][":path"] == "/custom"
    assert "first" not in repr(target("127.0.0.1:1", token="first"))


async def test_reads_gzip_and_follows_a_redirect_on_the_same_host() -> None:
    async def moved(fields: dict[str, str], writer: asyncio.StreamWriter) -> None:
        if fields[":path"] == "/metrics":
            await answer(b"", "307 Temporary Redirect", "Location: /metrics/")(fields, writer)
        else:
            await answer(gzip.compress(BUSY), "200 OK", "Content-Encoding: gzip")(fields, writer)

    async with serving(moved) as port:
        source = ScrapeSource(StaticTargets([target(f"127.0.0.1:{port}", name="e0")]), NO_JITTER, Clock())
        frame = await source.collect(0.0)
        await source.close()
    assert frame.targets[0].up, frame.targets[0].error
    assert frame.endpoints.cell("e0", "generation_tokens").state is SignalState.KNOWN


async def test_a_connection_is_kept_from_one_collection_to_the_next() -> None:
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while await reader.readline():
            if (await reader.readuntil(b"\r\n\r\n")).endswith(b"\r\n\r\n"):
                writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(BUSY)}\r\n\r\n".encode() + BUSY)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        source = ScrapeSource(StaticTargets([target(f"127.0.0.1:{port}", name="e0")]), NO_JITTER, Clock())
        for tick in range(3):
            assert (await source.collect(float(tick))).targets[0].up
        await source.close()
    assert connections == 1


async def test_targets_come_and_go_and_a_changed_one_starts_anew() -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(serving(answer(BUSY)))
        second = await stack.enter_async_context(serving(answer(BUSY, "500 Internal Server Error")))
        listed = Listed(target(f"127.0.0.1:{first}", name="e0"))
        clock = Clock()
        source = ScrapeSource(listed, NO_JITTER, clock)
        assert (await source.collect(clock.now)).endpoints.rows == ("e0",)
        listed.now = [target(f"127.0.0.1:{second}", name="e0"), target(f"127.0.0.1:{first}", name="e1")]
        frame = await source.collect(clock.now)
        assert frame.endpoints.rows == ("e0", "e1")
        assert frame.endpoints.cell("e0", "generation_tokens").state is SignalState.NEVER_SEEN
        assert frame.targets[1].up
        listed.now = [*listed.now, target(f"127.0.0.1:{first}", name="e1")]
        assert (await source.collect(clock.now)).endpoints.rows == ("e0", "e1")
        assert "found e1 again" in source.warnings[0]
        listed.now = []
        assert (await source.collect(clock.now)).endpoints.rows == ()
        await source.close()


async def test_a_targets_file_is_followed_and_a_broken_one_keeps_the_last_good_list(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    async with serving(answer(BUSY)) as port:
        group = {"targets": [f"127.0.0.1:{port}"], "labels": {"name": "e0", "pool": "chat", "build": "b1"}}
        path.write_text(json.dumps([group]))
        source = ScrapeSource(FileTargets(path), NO_JITTER, Clock())
        frame = await source.collect(0.0)
        assert source.warnings == ()
        path.write_text('[{"targets": ')
        kept = await source.collect(1.0)
        await source.close()
    endpoint = frame.topology.endpoints["e0"]
    assert (endpoint.pool, endpoint.build, endpoint.address) == ("chat", "b1", f"127.0.0.1:{port}")
    assert (endpoint.product, endpoint.model) == ("vllm", "tiny")
    assert endpoint.url == f"http://127.0.0.1:{port}"
    assert kept.endpoints.rows == ("e0",)
    assert kept.targets[0].up
    assert "expected a JSON list of target groups" in source.warnings[0]


async def test_the_frames_time_is_when_the_collection_ended_and_ages_count_from_each_body() -> None:
    clock = Clock(100.0)

    async def slow(fields: dict[str, str], writer: asyncio.StreamWriter) -> None:
        clock.now += 0.25
        await answer(BUSY)(fields, writer)

    async with serving(slow) as port:
        source = ScrapeSource(StaticTargets([target(f"127.0.0.1:{port}", name="e0")]), NO_JITTER, clock)
        frame = await source.collect(100.0)
        await source.close()
    assert frame.at == 100.25
    assert frame.endpoints.cell("e0", "generation_tokens").age_s == 0.0
    assert frame.targets[0].duration_s == 0.25


def test_jitter_is_spread_and_always_the_same_for_a_target() -> None:
    offsets = [TargetRecord(target(f"10.0.0.{i}:8000")).offset_s(0.5) for i in range(200)]
    again = [TargetRecord(target(f"10.0.0.{i}:8000")).offset_s(0.5) for i in range(200)]
    assert offsets == again
    assert all(0.0 <= offset < 0.5 for offset in offsets)
    assert all(sum(low <= offset < low + 0.1 for offset in offsets) > 20 for low in (0.0, 0.1, 0.2, 0.3, 0.4))


def test_defaults_follow_the_interval() -> None:
    fast, slow = ScrapeSettings(interval_s=1.0), ScrapeSettings(interval_s=15.0)
    assert (fast.deadline, fast.freshness, fast.backoff_cap) == (0.8, 5.0, 12.0)
    assert (slow.deadline, slow.freshness, slow.backoff_cap) == (10.0, 45.0, 60.0)
