"""The daemon's own faults: reloads that are refused, a journal it cannot read, and a cycle that will not end."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from benchmarks.bad_input.engine import Engine, silent
from inferostat.api.controls import ControlError
from inferostat.config import load
from inferostat.daemon import Daemon

RELOADED = "inferostat_config_last_reload_successful"
LAST_CYCLE = "inferostat_last_cycle_timestamp_seconds"


class Clock:
    """The event loop's own time, from a fixed moment on."""

    def __call__(self) -> float:
        return 1_800_000_000.0 + asyncio.get_running_loop().time()


def write(path: Path, engine: Engine, **changes: object) -> None:
    document = {
        "interval": "100ms",
        "pools": {"a": {"targets": [{"url": f"http://{engine.metrics.address}", "name": engine.name}]}},
        "scrape": {"jitter": 0.0, "deadline": "30s"},
        "api": {"port": 0},
        **changes,
    }
    path.write_text(yaml.safe_dump(document))


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[Daemon]:
    """A daemon in this process, told to stop at the end; an end that takes ten seconds fails the test."""
    started = asyncio.Event()
    daemon = Daemon(load(path), path, Clock())
    task = asyncio.create_task(daemon.run(lambda url: started.set()))
    try:
        await asyncio.wait_for(started.wait(), 10.0)
        yield daemon
    finally:
        daemon.flags.stop.set()
        await asyncio.wait_for(task, 10.0)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    one = Engine("e0")
    await one.start()
    yield one
    await one.stop()


def metric(daemon: Daemon, name: str) -> float:
    return daemon.telemetry.registry.get_sample_value(name) or 0.0


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10.0):
        while not holds():
            await asyncio.sleep(0.02)


async def cycles_go_on(daemon: Daemon) -> None:
    last = metric(daemon, LAST_CYCLE)
    await until(lambda: metric(daemon, LAST_CYCLE) > last + 0.15)


async def test_what_a_running_agent_cannot_change_refuses_the_reload_as_a_whole(tmp_path: Path, engine: Engine) -> None:
    path = tmp_path / "inferostat.yaml"
    write(path, engine)
    async with running(path) as daemon:
        before = daemon.config
        write(path, engine, interval="200ms", journal="other.sqlite", retention="1h", api={"port": 1})
        with pytest.raises(ControlError) as caught:
            await daemon.reload()
        assert caught.value.status == 422
        for name in ("journal: ", "api: ", "retention: "):
            assert name in str(caught.value)
        assert daemon.config is before
        assert metric(daemon, RELOADED) == 0.0
        await cycles_go_on(daemon)
    assert not (tmp_path / "other.sqlite").exists()


async def test_a_good_reload_goes_on_with_what_was_learnt(tmp_path: Path, engine: Engine) -> None:
    path = tmp_path / "inferostat.yaml"
    write(path, engine)
    async with running(path) as daemon:
        await cycles_go_on(daemon)
        write(path, engine, interval="150ms", mode="observe")
        await daemon.reload()
        assert daemon.config.interval == 0.15
        assert metric(daemon, RELOADED) == 1.0
        await cycles_go_on(daemon)
        assert daemon.telemetry.registry.get_sample_value("inferostat_mode_info", {"mode": "observe"}) == 1.0


async def test_a_pause_that_cannot_be_read_may_be_one_so_nothing_is_moved(tmp_path: Path, engine: Engine) -> None:
    path = tmp_path / "inferostat.yaml"
    write(path, engine)
    async with running(path) as daemon:
        await cycles_go_on(daemon)
        assert metric(daemon, "inferostat_paused") == 0.0
        other = sqlite3.connect(tmp_path / "inferostat.sqlite")
        other.execute("DROP TABLE pause")
        other.close()
        await until(lambda: metric(daemon, "inferostat_paused") == 1.0)
        await cycles_go_on(daemon)


async def test_a_scrape_that_hangs_does_not_hold_up_the_end(
    tmp_path: Path, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "inferostat.yaml"
    write(path, engine)
    hanging = asyncio.Event()

    async def hang(writer: asyncio.StreamWriter) -> None:
        hanging.set()
        await silent(writer)

    async with running(path) as daemon:
        await cycles_go_on(daemon)
        engine.fault = hang
        await asyncio.wait_for(hanging.wait(), 10.0)
    assert "cycle_given_up" in caplog.text
    assert not list(tmp_path.glob("*.sqlite-wal")), "the journal was closed in order"
