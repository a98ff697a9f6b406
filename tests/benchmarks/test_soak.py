"""The figures of a long run, from samples made by hand, and the reading of /proc on this very process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.processes import children, usage
from benchmarks.soak import Sample, growth_percent, report


def samples(*rss_mib: float, every_s: float = 100.0, cycles_lost: int = 0) -> list[Sample]:
    return [
        Sample(
            at=number * every_s,
            rss_bytes=int(size * 2**20),
            cycles=number * every_s - (cycles_lost if number == len(rss_mib) - 1 else 0),
            failed=0.0,
            overruns=float(cycles_lost > 0),
            last_cycle_age_s=0.5,
        )
        for number, size in enumerate(rss_mib)
    ]


def test_growth_is_counted_from_the_end_of_the_warm_up() -> None:
    assert growth_percent(samples(50, 80, 100, 100, 105, 110)) == pytest.approx(10.0)
    assert growth_percent(samples(50, 80, 100, 200, 200, 200)) == pytest.approx(0.0, abs=1e-9)


def test_growth_is_unknown_in_a_run_that_is_hardly_longer_than_the_warm_up() -> None:
    assert growth_percent(samples(50, 80, 100, 105, 110)) is None


def test_a_run_with_every_cycle_and_level_memory_is_good() -> None:
    found = report(samples(90, 100, 100, 100, 100, 101), 1.0, {"agent": 0.1}, 0.003)
    assert (found.cycles, found.due, found.missed) == (500.0, 500.0, 0.0)
    assert found.good


def test_a_missed_cycle_or_growing_memory_is_not() -> None:
    lost = report(samples(90, 100, 100, 100, 100, 100, cycles_lost=3), 1.0, {}, None)
    assert lost.missed == 2.0  # one sample may fall just before a cycle
    assert not lost.good
    assert not report(samples(90, 100, 100, 100, 105, 110), 1.0, {}, None).good


def test_usage_of_a_process_and_its_children() -> None:
    before = usage(os.getpid())
    assert before.rss_bytes > 2**20
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in children(os.getpid())
        child.communicate(b"\n")
    sum(range(2_000_000))
    assert usage(os.getpid()).cpu_s > before.cpu_s
