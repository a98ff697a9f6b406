"""Replays recorded bodies of real engines, one a second, as `diagnose` would scrape them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analyzers.model import Analysis
from collector.model import (
    Endpoint,
    Frame,
    Level,
    Pool,
    Table,
    TargetRole,
    TargetStatus,
    Topology,
)
from collector.reading import TargetReader
from tests.analyzers.frames import Loop

FIXTURES = Path(__file__).parents[1] / "fixtures" / "live"
REFUSED = "expected a metrics body, found connection refused; check that the engine runs"


def replay(bodies: Sequence[str | None], prefix: str = "vllm-0.32-") -> Analysis:
    """The analysis after the last body; None is a scrape that was refused."""
    reader, loop = TargetReader(), Loop(interval_s=1.0)
    rows, read_at, failing, analysis = None, 0.0, None, None
    for number, name in enumerate(bodies):
        now = 1000.0 + number
        if name is not None:
            reading = reader.read((FIXTURES / f"{prefix}{name}.prom").read_bytes())
            assert reading.error is None
            rows, read_at, failing = reading.rows[Level.ENDPOINT], now, None
        else:
            failing = now if failing is None else failing
        assert rows is not None
        status = TargetStatus(
            "engine",
            TargetRole.ENGINE,
            "http://engine",
            up=name is not None,
            scraped_at=read_at,
            error=REFUSED if name is None else None,
            failing_since=failing,
        )
        made = Table(
            ("engine",),
            rows.columns,
            rows.value,
            rows.state,
            rows.value * 0 + (now - read_at),
            rows.histograms,
            rows.histogram_state,
        )
        where = Topology(
            pools={"default": Pool("default", ("engine",))},
            endpoints={"engine": Endpoint("engine", "default", "http://engine", "engine")},
        )
        analysis = loop.tick(Frame(now, made, Table.empty((), ()), Table.empty((), ()), where, (status,)))
    assert analysis is not None
    return analysis
