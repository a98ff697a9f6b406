"""One endpoint against its peers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analyzers.model import Analysis, Scope, ScopeKind
from analyzers.outlier import TRAITS, peer_scores
from tests.analyzers.frames import Loop, frame, slugs, total

ITL = TRAITS[0]


def run(
    itl: dict[str, float], errors: dict[str, float] | None = None, rate: float = 300.0, seconds: int = 40
) -> Analysis:
    loop = Loop()
    for t in range(1, seconds + 1):
        rows = {
            name: {
                "requests_running": 10.0,
                "requests_waiting": 0.0,
                "generation_tokens": rate * t * 0.02 / step,
                "itl": total(step, rate * t),
                "gateway_attempts": 5.0 * t,
                "gateway_errors": (errors or {}).get(name, 0.0) * t,
            }
            for name, step in itl.items()
        }
        analysis = loop.tick(frame(float(t), rows))
    return analysis


def test_slow_endpoint_is_named() -> None:
    found = run({"a": 0.02, "b": 0.021, "c": 0.019, "d": 0.034}).find("endpoint-outlier")
    assert found is not None and found.scope == Scope(ScopeKind.ENDPOINT, "d")
    assert {item.signal for item in found.evidence} == {"itl_mean", "tokens_per_running_request"}


@pytest.mark.parametrize(
    "itl",
    [
        {"a": 0.02, "b": 0.021, "c": 0.019, "d": 0.0215},  # within what matters
        {"a": 0.02, "b": 0.021, "c": 0.034},  # two peers are no yardstick
        {"a": 0.02, "b": 0.02, "c": 0.02, "d": 0.012},  # better is no fault
        {"a": 0.034, "b": 0.035, "c": 0.034, "d": 0.035},  # all alike
    ],
)
def test_no_outlier(itl: dict[str, float]) -> None:
    assert "endpoint-outlier" not in slugs(run(itl))


def test_low_volume_is_not_judged_and_errors_are() -> None:
    alike = dict.fromkeys("abcd", 0.02)
    assert "endpoint-outlier" not in slugs(run({**alike, "d": 0.05}, rate=0.3))
    found = run(alike, errors={"d": 1.5}).find("endpoint-outlier")
    assert found is not None and found.scope.name == "d" and found.evidence[0].signal == "error_share"


def test_scores_leave_the_judged_one_out_and_skip_unknown() -> None:
    z, median = peer_scores(np.array([1.0, 1.0, 1.0, 3.0, np.nan]), ITL)
    assert median[3] == 1.0 and z[3] > 3.5
    assert np.isnan(z[4]) and np.all(z[:3] <= 0)


def test_before_the_long_window_confirms_an_outlier_is_not_sure() -> None:
    itl = {"a": 0.02, "b": 0.021, "c": 0.019, "d": 0.034}
    early, late = run(itl, seconds=10).find("endpoint-outlier"), run(itl).find("endpoint-outlier")
    assert early is not None
    assert late is not None
    assert early.confidence == 0.5
    assert late.confidence > 0.6


def test_a_replica_that_has_just_joined_is_not_judged_yet() -> None:
    """A new replica gets a herd of prompts and has nothing in its caches: its first minute says little of it."""
    loop, named = Loop(), []
    for t in range(1, 111):
        steps = {"a": 0.02, "b": 0.021, "c": 0.019, "d": 0.02, **({"new": 0.034} if t > 40 else {})}
        rows = {
            name: {
                "requests_running": 10.0,
                "requests_waiting": 0.0,
                "generation_tokens": 6.0 * t / step,
                "itl": total(step * (1 + 0.3 * math.sin(t) / t), 300.0 * t),
            }
            for name, step in steps.items()
        }
        if loop.tick(frame(float(t), rows)).find("endpoint-outlier"):
            named.append(t)
    assert named and 40 + 50 <= named[0] <= 40 + 65
