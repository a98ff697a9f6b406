"""Targets that misbehave, on real sockets: each says what is wrong and none disturbs its neighbour."""

from __future__ import annotations

import asyncio
import gzip
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from collector.model import Frame, SignalState, TargetRole, TargetStatus
from collector.sources.scrape import ScrapeSettings, ScrapeSource
from collector.sources.targets import StaticTargets, Target, target
from tests.collector.sources.loopback import BUSY, Clock, Reply, answer, counted, serving

DEADLINE_S = 0.4


@asynccontextmanager
async def source_of(
    *targets: Target, clock: Clock | None = None, max_body_bytes: int = 1 << 20
) -> AsyncIterator[ScrapeSource]:
    settings = ScrapeSettings(interval_s=5.0, deadline_s=DEADLINE_S, jitter=0.0, max_body_bytes=max_body_bytes)
    source = ScrapeSource(StaticTargets(targets), settings, clock or Clock())
    try:
        yield source
    finally:
        await source.close()


async def beside_a_good_one(bad: Reply | Target, max_body_bytes: int = 1 << 20) -> tuple[TargetStatus, Frame]:
    """Status of the bad target and the frame, after checking the good target beside it and the time taken."""
    async with AsyncExitStack() as stack:
        good = await stack.enter_async_context(serving(answer(BUSY)))
        if not isinstance(bad, Target):
            bad = target(f"127.0.0.1:{await stack.enter_async_context(serving(bad))}", name="bad")
        source = await stack.enter_async_context(
            source_of(bad, target(f"127.0.0.1:{good}", name="good"), max_body_bytes=max_body_bytes)
        )
        began = time.monotonic()
        frame = await source.collect(1_800_000_000.0)
        assert time.monotonic() - began < DEADLINE_S + 1.0
    statuses = {status.name: status for status in frame.targets}
    assert statuses["good"].up
    assert frame.endpoints.cell("good", "generation_tokens").state is SignalState.KNOWN
    assert not statuses["bad"].up
    assert statuses["bad"].failing_since is not None
    assert frame.endpoints.cell("bad", "generation_tokens").known is None
    assert frame.endpoints.histogram("bad", "ttft") is None
    return statuses["bad"], frame


def says(status: TargetStatus, *parts: str) -> None:
    assert status.error is not None
    assert status.error.startswith("expected ")
    for part in parts:
        assert part in status.error


async def test_unreachable() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        status, frame = await beside_a_good_one(target(f"127.0.0.1:{port}", name="bad"))
    says(status, "a connection to 127.0.0.1", "refused", "check that the target runs")
    assert frame.endpoints.rows == ("bad", "good")


async def test_a_name_that_does_not_resolve() -> None:
    status, _ = await beside_a_good_one(target("http://no-such-host.invalid:8000", name="bad"))
    says(status, "to resolve no-such-host.invalid", "correct the target's host")


async def test_silent() -> None:
    async def silent(_: dict[str, str], __: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    status, _ = await beside_a_good_one(silent)
    says(status, f"within {DEADLINE_S:g} s", "overloaded or hung")


async def test_slow_drip() -> None:
    async def drip(_: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(BUSY)}\r\n\r\n".encode())
        for i in range(len(BUSY)):
            writer.write(BUSY[i : i + 1])
            await writer.drain()
            await asyncio.sleep(0.02)

    status, _ = await beside_a_good_one(drip)
    says(status, f"within {DEADLINE_S:g} s")


async def test_endless_is_cut_at_the_size_limit() -> None:
    sent = 0

    async def endless(_: dict[str, str], writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(BUSY)
            sent += len(BUSY)
            await writer.drain()

    status, _ = await beside_a_good_one(endless, max_body_bytes=200_000)
    says(status, "at most 200000 bytes", "found more")
    assert sent < 20_000_000


async def test_oversized_by_its_own_length() -> None:
    status, _ = await beside_a_good_one(answer(BUSY * 8), max_body_bytes=200_000)
    says(status, "at most 200000 bytes")


async def test_a_small_body_that_unpacks_to_a_huge_one() -> None:
    bomb = answer(gzip.compress(b"a 1\n" * 10_000_000), "200 OK", "Content-Encoding: gzip")
    status, _ = await beside_a_good_one(bomb, max_body_bytes=1_000_000)
    says(status, "expected")


async def test_truncated_against_its_length() -> None:
    async def cut(_: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(BUSY)}\r\n\r\n".encode())
        writer.write(BUSY[: len(BUSY) // 2])
        await writer.drain()

    status, _ = await beside_a_good_one(cut)
    says(status, "whole metrics body", "cut short")


async def test_truncated_in_the_middle_of_a_chunk() -> None:
    async def cut(_: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"8000\r\n" + BUSY[:1000])
        await writer.drain()

    status, _ = await beside_a_good_one(cut)
    says(status, "whole metrics body", "cut short")


async def test_truncated_where_nothing_tells_the_length() -> None:
    async def cut(_: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + BUSY[: BUSY.index(b"vllm:generation_tokens_total") + 40])
        await writer.drain()

    status, _ = await beside_a_good_one(cut)
    says(status)


@pytest.mark.parametrize(
    "body", [b"<html><body>Welcome</body></html>", b'{"status": "ok"}', b"\x00\x01\x02" * 500, b""]
)
async def test_something_that_is_no_metrics_body(body: bytes) -> None:
    status, _ = await beside_a_good_one(answer(body))
    says(status)


@pytest.mark.parametrize(
    ("status_line", "advice"),
    [
        ("401 Unauthorized", "token"),
        ("403 Forbidden", "allow this token"),
        ("404 Not Found", "metrics path"),
        ("500 Internal Server Error", "the target's own log"),
        ("503 Service Unavailable", "the target's own log"),
    ],
)
async def test_http_errors(status_line: str, advice: str) -> None:
    status, _ = await beside_a_good_one(answer(BUSY, status_line))
    says(status, "expected HTTP 200", f"found {status_line}", advice)


async def test_something_that_does_not_speak_http() -> None:
    async def banner(_: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await writer.drain()

    status, _ = await beside_a_good_one(banner)
    says(status, "expected an HTTP answer")


async def test_a_redirect_elsewhere_is_not_followed() -> None:
    seen: list[dict[str, str]] = []

    async def elsewhere(fields: dict[str, str], writer: asyncio.StreamWriter) -> None:
        seen.append(fields)
        await answer(BUSY)(fields, writer)

    async with serving(elsewhere) as other:
        location = f"Location: http://127.0.0.1:{other}/metrics"
        status, _ = await beside_a_good_one(answer(b"", "302 Found", location))
    says(status, f"a redirect to 127.0.0.1:{other}")
    assert not seen


async def test_a_redirect_in_a_circle_ends() -> None:
    status, _ = await beside_a_good_one(answer(b"", "307 Temporary Redirect", "Location: /again"))
    says(status, "more than 2 redirects")


async def test_a_token_file_that_is_not_there(tmp_path: Path) -> None:
    async with serving(answer(BUSY)) as port:
        status, _ = await beside_a_good_one(target(f"127.0.0.1:{port}", name="bad", token_file=tmp_path / "absent"))
    says(status, "readable token file", "correct token_file")


async def test_a_target_of_another_role() -> None:
    async with serving(answer(BUSY)) as port:
        status, _ = await beside_a_good_one(target(f"127.0.0.1:{port}/metrics", TargetRole.GPU, name="bad"))
    says(status, "a GPU exporter's metrics", "found vllm", "correct the target's role")


async def test_values_grow_old_while_a_target_fails_then_are_stale() -> None:
    replies = [answer(BUSY)]

    async def current(fields: dict[str, str], writer: asyncio.StreamWriter) -> None:
        await replies[-1](fields, writer)

    clock = Clock()
    async with (
        serving(current) as port,
        source_of(target(f"127.0.0.1:{port}", name="e0"), clock=clock) as source,
    ):
        known = (await source.collect(clock.now)).endpoints.cell("e0", "generation_tokens")
        replies.append(answer(b"", "500 Internal Server Error"))
        states = []
        for _ in range(5):
            clock.now += 5.0
            frame = await source.collect(clock.now)
            cell = frame.endpoints.cell("e0", "generation_tokens")
            states.append((cell.state, cell.age_s, frame.endpoints.histogram("e0", "ttft") is None))
            assert not frame.targets[0].up
            assert frame.targets[0].scraped_at == 1_800_000_000.0
            assert frame.targets[0].failing_since == 1_800_000_005.0
    assert known.state is SignalState.KNOWN
    assert states == [
        (SignalState.KNOWN, 5.0, False),
        (SignalState.KNOWN, 10.0, False),
        (SignalState.KNOWN, 15.0, False),
        (SignalState.STALE, 20.0, True),
        (SignalState.STALE, 25.0, True),
    ]
    assert frame.endpoints.cell("e0", "admission_rejections").state in (
        SignalState.STALE,
        SignalState.NEVER_SEEN,
    )


async def test_back_off_doubles_to_its_cap_and_always_tries_again() -> None:
    attempts: list[float] = []
    clock = Clock(0.0)

    async def failing(fields: dict[str, str], writer: asyncio.StreamWriter) -> None:
        attempts.append(clock.now)
        await answer(b"", "500 Internal Server Error" if clock.now < 400 else "200 OK")(fields, writer)

    async with (
        serving(failing) as port,
        source_of(target(f"127.0.0.1:{port}", name="e0"), clock=clock) as source,
    ):
        for tick in range(80):
            clock.now = 5.0 * tick
            frame = await source.collect(clock.now)
            assert not frame.targets[0].up
            assert frame.targets[0].error is not None
    gaps = [after - before for before, after in pairwise(attempts)]
    assert gaps[:6] == [5.0, 5.0, 10.0, 20.0, 40.0, 60.0]
    assert set(gaps[6:]) == {60.0}


async def test_recovery_clears_the_error_and_the_back_off() -> None:
    replies: list[Reply] = [answer(b"", "500 Internal Server Error")]

    async def current(fields: dict[str, str], writer: asyncio.StreamWriter) -> None:
        await replies[-1](fields, writer)

    clock = Clock()
    async with (
        serving(current) as port,
        source_of(target(f"127.0.0.1:{port}", name="e0"), clock=clock) as source,
    ):
        for _ in range(4):
            await source.collect(clock.now)
            clock.now += 60.0
        replies.append(answer(BUSY))
        for _ in range(2):
            status = (await source.collect(clock.now)).targets[0]
            assert (status.up, status.error, status.failing_since) == (True, None, None)
            clock.now += 5.0


async def test_a_target_that_restarts_is_read_on_and_says_so() -> None:
    bodies = [counted(BUSY, 5e6, 1.7e9)]

    async def current(fields: dict[str, str], writer: asyncio.StreamWriter) -> None:
        await answer(bodies[-1])(fields, writer)

    clock = Clock()
    async with (
        serving(current) as port,
        source_of(target(f"127.0.0.1:{port}", name="e0"), clock=clock) as source,
    ):
        first = await source.collect(clock.now)
        bodies.append(counted(BUSY, 12.0, 1_800_000_002.0))
        clock.now += 5.0
        second = await source.collect(clock.now)
        clock.now += 5.0
        third = await source.collect(clock.now)
    assert not any("process changed" in warning for warning in first.targets[0].warnings)
    assert any("process changed: started at 1800000002" in warning for warning in second.targets[0].warnings)
    assert second.endpoints.cell("e0", "generation_tokens").value == 12.0
    assert not any("process changed" in warning for warning in third.targets[0].warnings)


async def test_a_target_that_becomes_another_product_is_learnt_anew() -> None:
    gpu = b'# TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1"} 50\n'
    bodies = [BUSY]

    async def current(fields: dict[str, str], writer: asyncio.StreamWriter) -> None:
        await answer(bodies[-1])(fields, writer)

    clock = Clock()
    async with (
        serving(current) as port,
        source_of(target(f"127.0.0.1:{port}", name="e0"), clock=clock) as source,
    ):
        assert (await source.collect(clock.now)).targets[0].up
        bodies.append(gpu)
        clock.now += 5.0
        status = (await source.collect(clock.now)).targets[0]
        says(status, "an engine's metrics", "found dcgm")
        bodies.append(BUSY)
        clock.now += 5.0
        frame = await source.collect(clock.now)
    assert frame.targets[0].up
    assert any("dcgm" in warning for warning in frame.targets[0].warnings)
    assert frame.endpoints.cell("e0", "generation_tokens").state is SignalState.KNOWN
