"""Saturation, queue growth and their controls; KV pressure; imbalance."""

from __future__ import annotations

import pytest

from analyzers.model import Analysis, Scope, ScopeKind
from collector.model import SignalState
from tests.analyzers.frames import Loop, Row, frame, slugs

POOL = Scope(ScopeKind.POOL, "default")


def run(row: dict[str, Row], *, ticks: int = 12, grow: float = 0.0) -> Analysis:
    """The same gauges each second with work flowing; the queue grows by `grow` a second."""
    loop = Loop()
    for t in range(1, ticks + 1):
        rows = {
            name: {"generation_tokens": 300.0 * t, "requests_by_finish_reason.stop": 2.0 * t, **cells}
            for name, cells in row.items()
        }
        for cells in rows.values():
            if grow and isinstance(cells.get("requests_waiting"), float):
                cells["requests_waiting"] = cells["requests_waiting"] + grow * t  # type: ignore[operator]
        analysis = loop.tick(frame(float(t), rows))
    return analysis


def test_pool_is_saturated_when_every_endpoint_is() -> None:
    full = {"requests_running": 32.0, "requests_waiting": 6.0}
    free = {"requests_running": 12.0, "requests_waiting": 0.0}
    both = run({"a": full, "b": full})
    assert both.find("saturated", POOL)
    one = run({"a": full, "b": free})
    assert one.find("saturated", Scope(ScopeKind.ENDPOINT, "a"))
    assert not one.find("saturated", POOL)
    assert not one.find("saturated", Scope(ScopeKind.ENDPOINT, "b"))
    assert one.find("replica-imbalance", POOL)
    assert not both.find("replica-imbalance", POOL)


def test_full_batch_without_a_queue_is_no_saturation() -> None:
    assert not slugs(run({"a": {"requests_running": 32.0, "requests_waiting": 0.0}})) & {
        "saturated",
        "queue-growing",
    }


def test_unknown_gauges_saturate_nothing() -> None:
    unknown: Row = {"requests_running": SignalState.STALE, "requests_waiting": SignalState.STALE}
    assert not slugs(run({"a": unknown, "b": unknown}))


def test_growth_beyond_chance_is_named_with_the_time_it_leaves() -> None:
    analysis = run({"a": {"requests_running": 32.0, "requests_waiting": 1.0}}, ticks=40, grow=2.0)
    found = analysis.find("queue-growing", POOL)
    assert found is not None
    assert {"requests_waiting", "time_to_slo_s", "demand_rate"} <= {item.signal for item in found.evidence}
    steady = run({"a": {"requests_running": 32.0, "requests_waiting": 4.0}}, ticks=40)
    assert not steady.find("queue-growing")


@pytest.mark.parametrize(
    ("usage", "waiting", "preempted", "expected"),
    [(0.95, 5.0, 0.0, True), (0.95, 0.0, 0.0, False), (0.5, 5.0, 0.0, False), (0.93, 4.0, 0.5, True)],
)
def test_kv_pressure_needs_a_full_cache_and_someone_who_suffers(
    usage: float, waiting: float, preempted: float, expected: bool
) -> None:
    loop = Loop()
    for t in range(1, 20):
        row = {
            "requests_running": 8.0,
            "requests_waiting": waiting,
            "kv_cache_usage": usage,
            "generation_tokens": 200.0 * t,
            "preemptions": preempted * t,
            "requests_by_finish_reason.stop": 2.0 * t,
        }
        analysis = loop.tick(frame(float(t), {"a": row}))
    assert bool(analysis.find("kv-pressure")) is expected
    assert bool(analysis.find("preemption-storm")) is (preempted > 0)


def test_seconds_to_full() -> None:
    loop = Loop()
    for t in range(1, 20):
        analysis = loop.tick(frame(float(t), {"a": {"requests_running": 8.0, "kv_cache_usage": 0.2 + 0.01 * t}}))
    left = analysis.measure("kv_seconds_to_full", Scope(ScopeKind.ENDPOINT, "a"))
    assert left == pytest.approx(61, abs=2)
