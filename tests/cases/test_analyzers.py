"""The time-series cases, as far as analyzers answer them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from analyzers.model import Analysis, ClientBehaviour, PoolSettings, Severity, Slo
from collector.model import Frame, Level
from tests.analyzers.frames import Loop, slugs
from tests.cases import adapter

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not adapter.CASES.exists(), reason=f"the cases are not at {adapter.CASES}"),
]
STORM = ("retry-storm-incipient", "retry-storm", "retry-storm-collapsed", "retry-storm-recovering")


def run(
    frames: Iterable[Frame], settings: PoolSettings | None = None, interval_s: float = 15.0
) -> dict[float, Analysis]:
    loop = Loop(settings=settings or PoolSettings(), interval_s=interval_s)
    return {made.at: loop.tick(made) for made in frames}


def test_c25_gauges_left_after_a_mass_cancel_are_stale() -> None:
    analyses = run(adapter.frames("C25.csv", adapter.engine))
    onset = min(at for at, a in analyses.items() if a.find("gauges-stale"))
    assert 300 < onset <= 375
    for at, analysis in analyses.items():
        assert not analysis.find("engine-hung")
        if at >= 300:
            assert not slugs(analysis) & {"saturated", "kv-pressure", "queue-growing"}, at
        if at >= onset:
            assert analysis.find("gauges-stale")


def test_c26_engine_that_gets_requests_and_makes_no_token_is_hung() -> None:
    analyses = run(adapter.frames("C26.csv", adapter.engine))
    onset = min(at for at, a in analyses.items() if a.find("engine-hung"))
    assert 240 < onset <= 360
    for at, analysis in analyses.items():
        assert not analysis.find("gauges-stale")
        assert not slugs(analysis) & {"saturated", "queue-growing"}, at
    found = analyses[900].find("engine-hung")
    assert found is not None and found.severity is Severity.CRITICAL and found.since == 225


def test_c28_two_xid_events_and_no_fault_in_between() -> None:
    analyses = run(adapter.device_frames("C28.csv"), interval_s=60.0)
    found = [f for a in analyses.values() for f in a.findings if f.slug == "gpu-fault"]
    assert {f.since for f in found} == {600.0, 3600.0}
    assert all(f.severity is Severity.INFO and "application class" in f.summary for f in found)
    for at in (0, 1500, 3540, 5400):
        assert not analyses[at].find("gpu-fault"), at


def test_c29_counter_of_several_workers_has_no_rate() -> None:
    loop = Loop(interval_s=15.0)
    flagged = None
    for made in adapter.frames("C29.csv", adapter.counter):
        analysis = loop.tick(made)
        for span in (30.0, 60.0, 300.0):
            rate = loop.history.rate(Level.ENDPOINT, "generation_tokens", span).cell("ep").known
            assert rate is None or rate <= 100
        if analysis.find("metric-contract"):
            flagged = made.at if flagged is None else flagged
        elif flagged is not None:
            pytest.fail(f"the counter was trusted again at {made.at}")
    assert flagged is not None and flagged <= 150


@pytest.mark.parametrize("timeout_s", [10.0, 60.0, 600.0])
def test_c44_storm_is_named_early_and_until_it_is_over(timeout_s: float) -> None:
    settings = PoolSettings(client=ClientBehaviour(timeout_s, "answer", 2))
    analyses = run(adapter.frames("C44.csv", adapter.storm), settings)
    onset = min(at for at, a in analyses.items() if a.find("retry-storm-incipient"))
    assert 300 < onset <= 345
    for at, analysis in analyses.items():
        assert bool(slugs(analysis) & set(STORM)) is (at >= onset), at
    levers = [advice.lever for f in analyses[345].findings if f.slug in STORM for advice in f.advice]
    assert levers[:2] == ["retry_budget", "admission"]


@pytest.mark.parametrize("timeout_s", [10.0, 60.0, 600.0])
def test_c44_control_plain_surge_is_no_storm(timeout_s: float) -> None:
    settings = PoolSettings(client=ClientBehaviour(timeout_s, "answer", 2))
    analyses = run(adapter.frames("C44.control.csv", adapter.storm), settings)
    assert not any(slugs(a) & set(STORM) for a in analyses.values())
    assert any("scale" in [x.lever for x in f.advice] for f in analyses[345].findings)
    assert analyses[345].find("demand-surge")


def test_c49_saturation_shows_at_the_entrance_only() -> None:
    analyses = run(adapter.frames("C49.csv", adapter.exit_side), PoolSettings(slo=Slo(ttft_s=0.5)))
    assert not any(a.findings for at, a in analyses.items() if at < 120)
    found = analyses[240].find("queue-growing")
    assert found is not None and "scale" in [advice.lever for advice in found.advice]
    named = {item.signal: item for item in found.evidence}
    assert named["ttft"].observed is not None and named["ttft"].observed > 0.5
    demand = named["demand_rate"]
    assert demand.observed is not None and demand.expected is not None and demand.observed > demand.expected
