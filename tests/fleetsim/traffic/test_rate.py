from pathlib import Path

import numpy as np
import pytest

from fleetsim.traffic import rate
from fleetsim.traffic.reader import open_profile

HEADER = "timestamp_s,rate_req_per_s\n"


def at(function: rate.Rate, *times: float) -> list[float]:
    values = function.at(np.array(times, dtype=float))
    assert values.max() <= function.peak * (1 + 1e-12)
    return [float(value) for value in values]


def test_steps_hold_from_their_start() -> None:
    assert at(rate.steps([(10, 4), (20, 0), (30, 2)]), 9.9, 10, 19.9, 20, 1000) == [0, 4, 4, 0, 2]


def test_a_ramp_is_level_outside() -> None:
    assert at(rate.ramp((10, 2), (20, 4)), 0, 15, 99) == [2, 3, 4]


def test_a_spike_multiplies_within_its_bounds() -> None:
    assert at(rate.spike(rate.constant(5), 10, 20), 9.9, 10, 19.9, 20) == [5, 15, 15, 5]
    assert at(rate.spike(rate.constant(5), 10, 20, 0.2), 0, 10) == [5, 1]


def test_a_day_has_the_swing_of_servegens_large_model() -> None:
    """Its 10-minute windows have mean 196/s, p5 84/s and p95 342/s."""
    windows = rate.diurnal(195.8).at(np.arange(0, rate.DAY_S, 600.0))
    assert windows.mean() == pytest.approx(195.8, rel=1e-6)
    assert np.percentile(windows, 5) == pytest.approx(84, rel=0.04)
    assert np.percentile(windows, 95) == pytest.approx(342, rel=0.04)
    assert int(windows.argmax()) * 600 == pytest.approx(rate.DAY_S * 0.6, abs=600)


@pytest.mark.parametrize(
    "build",
    [
        lambda: rate.constant(-1),
        lambda: rate.constant(float("nan")),
        lambda: rate.steps([]),
        lambda: rate.steps([(0, 1), (0, 2)]),
        lambda: rate.steps([(0, float("nan"))]),
        lambda: rate.ramp((10, 1), (5, 2)),
        lambda: rate.ramp((0, 1), (5, -2)),
        lambda: rate.ramp((0, 2), (5, float("nan"))),
        lambda: rate.ramp((0, 2), (5, float("inf"))),
        lambda: rate.spike(rate.constant(1), 0, 5, float("nan")),
        lambda: rate.spike(rate.constant(1), 5, 5),
    ],
)
def test_impossible_rates_are_refused(build: object) -> None:
    assert callable(build)
    with pytest.raises(ValueError, match=r"expected .* found"):
        build()


def profile(folder: Path, rows: str) -> Path:
    path = folder / "rates.csv"
    path.write_text(HEADER + rows)
    return path


def test_a_profile_is_held_window_by_window_and_zero_is_zero(tmp_path: Path) -> None:
    read = open_profile(profile(tmp_path, "1200,3\n1800,0\n2400,6\n"))
    assert read.gaps == []
    assert read.summary()["zero_windows"] == 1
    assert at(read.rate(), 0, 599, 600, 1200, 1799, 1800) == [3, 3, 0, 6, 6, 0]
    assert at(read.rate(mean=30), 0, 1200) == [30, 60]


def test_a_missing_window_is_a_gap_and_not_a_rate(tmp_path: Path) -> None:
    read = open_profile(profile(tmp_path, "0,3\n600,3\n2400,6\n"))
    assert read.gaps == [(1200, 2400)]
    with pytest.raises(ValueError, match=r"expected a rate for 1 gaps, first \(1200.0, 2400.0\) s"):
        read.rate()
    assert at(read.rate(gap_rate=4.5), 1199, 1200, 2399, 2400, 3000) == [3, 4.5, 4.5, 6, 0]


def test_zeros_cannot_be_scaled(tmp_path: Path) -> None:
    read = open_profile(profile(tmp_path, "0,0\n600,0\n"))
    assert at(read.rate(), 0, 700) == [0, 0]
    with pytest.raises(ValueError, match="expected a profile with a rate above 0"):
        read.rate(mean=5)
