from typing import Any

import pytest

from fleetsim.outcomes import attempted, cost_usd, outcomes, ratio, recovery_s


def line(t: float, outcome: str = "ok") -> dict[str, Any]:
    return {"t_start": t, "outcome": outcome}


def transition(at: float, replica: str, to: str) -> dict[str, Any]:
    return {"at": at, "replica": replica, "to": to, "gpus": 4, "price_usd_per_gpu_hour": 2.25}


def test_ratio_is_by_arrival_and_none_of_nothing() -> None:
    requests = attempted([line(2.0, "timeout"), line(1.0), line(3.0), line(4.0, "unfinished")])
    assert ratio(requests, 1.0, 3.0) == 0.5
    assert ratio(requests, 1.0, 3.1) == pytest.approx(2 / 3)
    assert ratio(requests, 4.0, 5.0) == 0.0
    assert ratio(requests, 10.0, 20.0) is None


def test_recovery_is_when_thirty_good_seconds_begin() -> None:
    # One request a second; all fail until t = 100, all succeed after.
    requests = attempted([line(t + 0.5, "ok" if t >= 100 else "timeout") for t in range(180)])
    # A window of 15 s that starts at 99 has one failure in it: 14/15 > 0.9.
    assert recovery_s(requests, 75.0, 148.5) == pytest.approx(24.0)
    assert recovery_s(requests, 75.0, 120.0) is None  # not thirty known seconds left
    assert recovery_s(attempted([line(t, "timeout") for t in range(180)]), 75.0, 148.5) is None
    assert recovery_s(attempted([line(t) for t in range(180)]), 75.0, 148.5) == 0.0


def test_relapse_is_no_recovery() -> None:
    failing = set(range(75, 90)) | set(range(100, 115))
    requests = attempted([line(t + 0.5, "timeout" if t in failing else "ok") for t in range(180)])
    assert recovery_s(requests, 75.0, 170.0) == pytest.approx(39.0)


def test_silence_proves_nothing() -> None:
    assert recovery_s([], 75.0, 148.5) is None


def test_cost_counts_allocated_time_inside_the_run_only() -> None:
    log = [
        transition(0.0, "a", "pending"),
        transition(10.0, "a", "warming"),
        transition(20.0, "a", "ready"),
        transition(100.0, "b", "warming"),
        transition(130.0, "b", "crashed"),  # its GPUs are still taken
        transition(150.0, "b", "draining"),
        transition(160.0, "b", "stopped"),
        transition(120.0, "c", "pending"),  # never placed, never paid
    ]
    # 9 $/h a replica: a from 50 to 200, b from 100 to 160
    assert cost_usd(log, 50.0, 200.0) == pytest.approx((150 + 60) * 9 / 3600)
    assert cost_usd(log, 300.0, 400.0) == pytest.approx(100 * 9 / 3600)
    assert cost_usd([], 0.0, 10.0) == 0.0


def test_all_figures_of_a_run() -> None:
    lines = [line(t + 0.5, "timeout" if 30 <= t < 75 and t % 3 == 0 else "ok") for t in range(180)]
    found = outcomes(
        lines,
        [transition(0.0, "a", "warming"), transition(1000.0, "a", "ready")],
        started_at=1000.0,
        trigger=(30.0, 75.0),
        duration_s=180.0,
        patience_s=31.5,
    )
    assert found.goodput_ratio_before_trigger == 1.0
    assert found.goodput_ratio_during_fault == pytest.approx(2 / 3)
    assert found.goodput_ratio_after_trigger == 1.0
    assert found.recovery_s == 0.0
    assert found.first_attempts == 180
    assert found.cost_usd == pytest.approx(180 * 9 / 3600)
    assert found.success_per_dollar == pytest.approx(165 / 0.45)
