"""Hung, stale, busy, down and unreachable, each against its neighbour."""

from __future__ import annotations

import pytest

from analyzers.model import Analysis
from collector.model import Frame, SignalState
from tests.analyzers.frames import Loop, frame, slugs, target, topology

REFUSED = "expected a metrics body, found connection refused"


def run(frames: list[Frame], interval_s: float = 1.0) -> list[Analysis]:
    loop = Loop(interval_s=interval_s)
    return [loop.tick(made) for made in frames]


def engine(
    t: int, *, tokens: float, running: float = 4.0, arrived: float | None = None, active: float | None = None
) -> dict[str, float]:
    row = {
        "requests_running": running,
        "requests_waiting": 3.0,
        "generation_tokens": tokens,
        "prompt_tokens": 100.0,
    }
    if arrived is not None:
        row["gateway_attempts"] = arrived
    if active is not None:
        row["gateway_active"] = active
    return row


@pytest.mark.parametrize("interval", [1, 5, 15])
def test_hung_with_arrivals_stale_without_at_any_period(interval: int) -> None:
    times = range(0, 12 * interval, interval)
    stop = 5 * interval
    hung = run([frame(t, {"e": engine(t, tokens=100.0 * min(t, stop), arrived=2.0 * t)}) for t in times], interval)
    stale = run(
        [
            frame(t, {"e": engine(t, tokens=100.0 * min(t, stop), arrived=2.0 * min(t, stop), active=0.0)})
            for t in times
        ],
        interval,
    )
    assert hung[-1].find("engine-hung") and not any(a.find("gauges-stale") for a in hung)
    assert stale[-1].find("gauges-stale") and not any(a.find("engine-hung") for a in stale)
    found = hung[-1].find("engine-hung")
    assert found is not None and found.since == stop


def test_busy_engine_and_idle_engine_are_fine() -> None:
    busy = run([frame(t, {"e": engine(t, tokens=10.0 * t, arrived=float(t))}) for t in range(12)])
    idle = run([frame(t, {"e": engine(t, tokens=500.0, running=0.0, arrived=7.0)}) for t in range(12)])
    for analysis in (*busy, *idle):
        assert not slugs(analysis) & {"engine-hung", "gauges-stale"}


def test_prefill_without_a_token_yet_is_progress() -> None:
    rows = [{**engine(t, tokens=500.0, arrived=float(t)), "prompt_tokens": 4000.0 * t} for t in range(12)]
    assert not any(a.find("engine-hung") for a in run([frame(t, {"e": row}) for t, row in enumerate(rows)]))


def test_hung_engine_that_was_taken_out_of_routing_stays_hung() -> None:
    rows = [engine(t, tokens=100.0 * min(t, 5), arrived=2.0 * min(t, 12), active=0.0) for t in range(40)]
    last = run([frame(t, {"e": row}) for t, row in enumerate(rows)])[-1]
    assert last.find("engine-hung") and not last.find("gauges-stale")


def test_unknown_token_counter_is_not_a_stall() -> None:
    rows = [{**engine(t, tokens=0.0), "generation_tokens": SignalState.MISSING} for t in range(12)]
    assert not any(
        slugs(a) & {"engine-hung", "gauges-stale"} for a in run([frame(t, {"e": row}) for t, row in enumerate(rows)])
    )


@pytest.mark.parametrize(
    ("error", "scraped_at", "served", "slug"),
    [
        (REFUSED, 1.0, 0.0, "engine-down"),
        ("expected an answer within 1 s, found none", 1.0, 0.0, "target-unreachable"),
        (REFUSED, 1.0, 5.0, "target-unreachable"),  # the gateway still gets answers: the engine lives
        ("expected a metrics body, found HTTP 401", None, 0.0, "target-unreachable"),
    ],
)
def test_down_is_told_from_unreachable(error: str, scraped_at: float | None, served: float, slug: str) -> None:
    frames = [
        frame(
            t,
            {
                "e": {
                    "requests_running": SignalState.STALE,
                    "gateway_success": served * t,
                    "gateway_attempts": 5.0 * t,
                }
            },
            targets=(target("e", up=False, error=error, scraped_at=scraped_at, failing_since=2.0),),
        )
        for t in range(3, 10)
    ]
    last = run(frames)[-1]
    assert slugs(last) & {"engine-down", "target-unreachable"} == {slug}


def test_target_that_refuses_and_was_never_up_is_not_called_down() -> None:
    frames = [
        frame(t, {"e": {}}, targets=(target("e", up=False, error=REFUSED, scraped_at=None),)) for t in range(1, 6)
    ]
    assert not run(frames)[-1].find("engine-down")


def test_a_replica_that_joins_and_has_not_answered_yet_is_a_cold_start() -> None:
    loop = Loop()
    for at in range(20):
        loop.tick(frame(float(at), {"a": {"requests_running": 1.0}}, targets=(target("a"),)))
    joined = (target("a"), target("b", up=False, error="connection refused", failing_since=20.0, scraped_at=None))
    where = topology(("a", "b"))
    for at in range(20, 40):
        analysis = loop.tick(frame(float(at), {"a": {"requests_running": 1.0}, "b": {}}, where=where, targets=joined))
    assert "cold-start" in slugs(analysis)
    assert not {"target-unreachable", "engine-down", "telemetry-outage"} & slugs(analysis)


def test_a_target_that_never_answered_since_our_start_is_unreachable() -> None:
    loop = Loop()
    never = (target("a"), target("b", up=False, error="connection refused", failing_since=0.0, scraped_at=None))
    where = topology(("a", "b"))
    for at in range(20):
        analysis = loop.tick(frame(float(at), {"a": {"requests_running": 1.0}, "b": {}}, where=where, targets=never))
    assert "target-unreachable" in slugs(analysis)
    assert "cold-start" not in slugs(analysis)


@pytest.mark.parametrize(("connect_failures", "sure"), [(0.0, False), (1.0, True)])
def test_a_refused_scrape_is_sure_enough_to_act_on_only_with_the_gateways_word(
    connect_failures: float, sure: bool
) -> None:
    loop = Loop()
    for at in range(30):
        lost = at >= 20
        row = {
            "requests_running": SignalState.STALE if lost else 1.0,
            "gateway_connect_failures": connect_failures * max(0, at - 20),
            "gateway_success": 0.0,
        }
        status = target("a", up=not lost, error=REFUSED if lost else None, failing_since=20.0 if lost else None)
        analysis = loop.tick(frame(float(at), {"a": row}, targets=(status,)))
    found = analysis.find("engine-down")
    assert found is not None
    assert (found.confidence >= 0.8) is sure
