"""The storm in kind: one replica, from five minutes before the fault until five minutes after it."""

import pytest
from rich.console import Console

from benchmarks.metastable import PUBLISHED, Case, Fate, document, goodput, play, table
from benchmarks.virtual_speed import Speed, growth
from fleetsim.virtual.record import CallRecord

LATE = (600.0, 720.0)  # three to five minutes after the replica is well again


@pytest.fixture(scope="module")
def unlimited() -> Fate:
    return play(Case(0.6), 1, LATE)


def test_kept_work_and_retries_outlive_a_two_minute_fault_at_60_percent(unlimited: Fate) -> None:
    assert unlimited.during is not None and unlimited.during < 0.9
    assert unlimited.late is not None and unlimited.late < 0.1
    assert unlimited.attempts == pytest.approx(3.0, abs=0.1)  # each call is tried as often as clients may


@pytest.mark.parametrize("case", [Case(0.6, aborts=True), Case(0.6, max_waiting=100)], ids=lambda case: case.title)
def test_aborts_or_a_bounded_queue_let_it_recover(case: Case) -> None:
    fate = play(case, 1, LATE)
    assert fate.after is not None and fate.after > 0.9
    assert fate.late is not None and fate.late > 0.95
    assert fate.attempts == pytest.approx(1.0, abs=0.1)


def test_goodput_is_by_when_answers_come() -> None:
    def call(t: float, ended_at: float | None, outcome: str = "ok") -> CallRecord:
        return CallRecord(t, "default", 0, 1, 1, outcome, ended_at=ended_at)

    calls = [call(1, 11), call(12, 13), call(13, 19, "timeout"), call(14, 25), call(15, None, "unfinished")]
    assert goodput(calls, (10, 20)) == pytest.approx(2 / 4)
    assert goodput(calls, (30, 40)) is None


def test_measured_and_published_stand_side_by_side() -> None:
    results = [(case, Fate(0.5, None, 1.0, 1.0)) for case in PUBLISHED]
    console = Console(record=True, width=140, quiet=False)
    with console.capture() as capture:
        console.print(table(results, 1))
    assert "0.50 | 0.64" in capture.get() and "- | 0.05" in capture.get()
    rows = document(results, 1)["rows"]
    assert rows[0]["measured"]["after"] is None
    assert rows[0]["published"]["after"] == 0.05


def test_growth_is_the_exponent_of_cpu_by_replicas() -> None:
    def speed(replicas: int, cpu_s: float) -> Speed:
        return Speed(replicas, 100.0, 1.0, 0.5, 100, cpu_s)

    assert growth([speed(1, 1.0), speed(10, 10.0), speed(100, 100.0)]) == pytest.approx(1.0)
    assert growth([speed(1, 1.0), speed(16, 4.0)]) == pytest.approx(0.5)
