"""Counters that fall: restarts that are proven, falls that are not, and readings of several processes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from collector.history import History
from collector.model import Cell, Level, SignalState
from tests.collector.series import Value, frame, history_of

TOKENS = "generation_tokens"
START = "process_start_time"
CASES = Path(__file__).parents[2].parent / "shared" / "cases"

Rows = list[tuple[float, dict[str, Value]]]


def rate(history: History, window_s: float = 60.0, signal: str = TOKENS, level: Level = Level.ENDPOINT) -> Cell:
    return history.rate(level, signal, window_s).cell("e0")


def test_a_restart_proven_by_the_start_time_counts_the_new_value() -> None:
    before: Rows = [(15.0 * i, {TOKENS: 9000.0 + 150 * i, START: -1e6}) for i in range(3)]
    history = history_of([*before, (45.0, {TOKENS: 60.0, START: 40.0})])
    assert rate(history) == Cell((300 + 60) / 45, SignalState.KNOWN)
    history.append(frame(60.0, {"e0": {TOKENS: 210.0, START: 40.0}}))
    assert rate(history) == Cell((300 + 60 + 150) / 60, SignalState.KNOWN)
    assert history.counter_state(Level.ENDPOINT, "e0", TOKENS) is SignalState.KNOWN


def test_a_proven_restart_counts_the_new_value_even_above_the_old_one() -> None:
    before: Rows = [(15.0 * i, {TOKENS: 10.0 + i, START: -1e6}) for i in range(3)]
    history = history_of([*before, (45.0, {TOKENS: 43.0, START: 31.0})])
    assert rate(history) == Cell((2 + 43) / 45, SignalState.KNOWN)


def test_a_family_that_comes_later_than_the_restart_is_still_judged_by_it() -> None:
    before: Rows = [(15.0 * i, {TOKENS: 9000.0, START: -1e6}) for i in range(3)]
    absent: Rows = [(45.0, {START: 40.0}), (60.0, {START: 40.0})]
    history = history_of([*before, *absent, (75.0, {TOKENS: 30.0, START: 40.0})])
    assert rate(history, 120.0) == Cell(30 / 75, SignalState.KNOWN)


def test_one_unproven_fall_is_unknown_for_a_window_then_known_again() -> None:
    history = History()
    states = []
    for i, value in enumerate([1000, 1150, 1300, 20, 170, 320, 470, 620, 770]):
        history.append(frame(15.0 * i, {"e0": {TOKENS: float(value), START: -1e6}}))
        states.append(rate(history).state)
    assert states[:3] == [SignalState.WARMING, SignalState.WARMING, SignalState.KNOWN]
    assert states[3:7] == [SignalState.RESET] * 4
    assert rate(history) == Cell(10.0, SignalState.KNOWN)
    assert history.counter_state(Level.ENDPOINT, "e0", TOKENS) is SignalState.RESET


def test_two_unproven_falls_within_five_minutes_are_inconsistent_and_heal_after() -> None:
    history = History()
    seen: dict[float, SignalState] = {}
    for i in range(60):
        at = 15.0 * i
        value = 10.0 * at - (500.0 if at >= 60 else 0.0) - (500.0 if at >= 240 else 0.0)
        history.append(frame(at, {"e0": {TOKENS: value}}))
        seen[at] = rate(history).state
    assert seen[60.0] is SignalState.RESET
    assert seen[180.0] is SignalState.KNOWN
    assert all(seen[15.0 * i] is SignalState.INCONSISTENT for i in range(16, 25))
    assert seen[885.0] is SignalState.KNOWN


@pytest.mark.parametrize("starts", [(-7200.0, -7199.4), (-7200.0, -7150.0), (-7150.0, -7200.0)])
def test_several_workers_in_turn_never_give_a_rate(starts: tuple[float, float]) -> None:
    """Even where each worker tells its own start time: it moves, but to before the last sample."""
    history = History()
    for i, worker in enumerate([0, 1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 1, 0]):
        value = (1200.0, 50_000.0)[worker] + 10.0 * 15 * i
        history.append(frame(15.0 * i, {"e0": {TOKENS: value, START: starts[worker]}}))
        assert rate(history).known is None
    assert rate(history).state is SignalState.INCONSISTENT


def test_a_gateway_that_restarts_ends_the_window_without_a_spike() -> None:
    history = History()
    states = []
    for i in range(12):
        since = i if i < 6 else i - 5.5
        cells: dict[str, Value] = {
            "attempts": 1e5 + 20.0 * since if i < 6 else 20.0 * since,
            "upstream_2xx": 9e4 + 18.0 * since if i < 6 else 18.0 * since,
            "arrivals": 1e5 + 20.0 * since if i < 6 else 20.0 * since,
            "active": 5.0,
        }
        history.append(frame(float(i), {"e0": cells}, Level.ROUTE))
        cell = rate(history, 6.0, "attempts", Level.ROUTE)
        states.append(cell.state)
        assert cell.known is None or cell.known == pytest.approx(20.0)
    assert states[5] is SignalState.KNOWN
    assert states[6:9] == [SignalState.WARMING] * 3
    assert states[9:] == [SignalState.KNOWN] * 3


def test_one_counter_of_a_gateway_falling_alone_is_no_restart() -> None:
    rows: Rows = [(float(i), {"attempts": 100.0 + i, "arrivals": 100.0 + i}) for i in range(6)]
    history = history_of([*rows, (6.0, {"attempts": 3.0, "arrivals": 106.0})], level=Level.ROUTE)
    assert rate(history, 6.0, "attempts", Level.ROUTE).state is SignalState.RESET
    assert rate(history, 6.0, "arrivals", Level.ROUTE).state is SignalState.KNOWN


def test_an_engine_restart_does_not_excuse_the_gateways_counters() -> None:
    """Columns of the gateway's view belong to another process than the endpoint's start time."""
    rows: Rows = [(float(i), {START: -1e6, TOKENS: 50.0 * i, "gateway_attempts": 10.0 * i}) for i in range(6)]
    history = history_of([*rows, (6.0, {START: 5.5, TOKENS: 4.0, "gateway_attempts": 60.0})])
    assert rate(history, 6.0, "gateway_attempts") == Cell(10.0, SignalState.KNOWN)
    assert rate(history, 6.0) == Cell((250 + 4) / 6, SignalState.KNOWN)


@pytest.mark.shared
def test_case_c29_a_counter_read_from_a_different_worker_each_scrape() -> None:
    if not CASES.is_dir():
        pytest.skip(f"no recorded cases at {CASES}")
    with (CASES / "C29.csv").open() as lines:
        samples = [(float(t), float(v)) for t, v in list(csv.reader(lines))[1:] if v]
    history = History()
    verdict_at = None
    for at, value in samples:
        history.append(frame(at, {"e0": {TOKENS: value, START: -86_400.0}}))
        for window_s in (30.0, 60.0, 120.0, 300.0):
            known = rate(history, window_s).known
            assert known is None or known <= 100.0
        if verdict_at is None and rate(history).state is SignalState.INCONSISTENT:
            verdict_at = at
        if verdict_at is not None:
            assert rate(history).state is SignalState.INCONSISTENT
            assert history.counter_state(Level.ENDPOINT, "e0", TOKENS) is SignalState.INCONSISTENT
    assert verdict_at is not None
    assert verdict_at <= 150.0
