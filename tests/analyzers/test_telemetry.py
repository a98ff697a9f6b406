"""Outages, contracts, demand and failures."""

from __future__ import annotations

from analyzers.model import Analysis, Scope, ScopeKind
from collector.model import SignalState, TargetRole
from tests.analyzers.frames import Loop, frame, slugs, target, topology

POOL = Scope(ScopeKind.POOL, "default")


def outage(lost: int, of: int = 10) -> Analysis:
    names = [f"e{i}" for i in range(of)]
    targets = [
        target(n, up=i >= lost, error=("expected an answer, found none"), scraped_at=1.0) for i, n in enumerate(names)
    ]
    return Loop().tick(frame(5.0, {n: {"requests_running": 1.0} for n in names}, targets=targets))


def test_outage_above_a_fifth() -> None:
    assert not outage(2).find("telemetry-outage")
    assert outage(3).find("telemetry-outage", POOL)
    assert len([f for f in outage(2).findings if f.slug == "target-unreachable"]) == 2


REFUSED = "expected a connection, found connection refused"


def refused(gateway_up: bool) -> Analysis:
    """Two ticks in which every engine refuses its scrape, and perhaps the gateway too."""
    names = [f"e{i}" for i in range(4)]
    loop = Loop()
    last = Analysis(0.0)
    for at in (5.0, 10.0):
        targets = [
            *(target(n, up=False, error=REFUSED, scraped_at=1.0, failing_since=4.0) for n in names),
            target("gw", up=gateway_up, error=None if gateway_up else REFUSED, role=TargetRole.GATEWAY),
        ]
        last = loop.tick(frame(at, {n: {"requests_running": SignalState.STALE} for n in names}, targets=targets))
    return last


def test_when_nothing_can_be_read_the_agent_is_blind_and_nobody_is_dead() -> None:
    found = refused(gateway_up=False)
    assert found.find("telemetry-outage", POOL)
    assert not found.find("engine-down")


def test_engines_that_refuse_beside_a_gateway_that_answers_are_down() -> None:
    found = refused(gateway_up=True)
    assert not found.find("telemetry-outage")
    assert len([f for f in found.findings if f.slug == "engine-down"]) == 4


def test_contract_of_lost_and_conflicting_signals() -> None:
    made = frame(1.0, {"e": {"requests_waiting": SignalState.CONFLICT}}, targets=(target("e", missed=("itl",)),))
    found = Loop().tick(made).find("metric-contract")
    assert found is not None and [item.signal for item in found.evidence] == ["itl", "requests_waiting"]
    clean = frame(1.0, {"e": {"requests_waiting": 1.0}}, targets=(target("e"),))
    assert not Loop().tick(clean).find("metric-contract")


def test_gateway_target_that_cannot_be_read() -> None:
    lost = target("gw", up=False, error="expected 200, found 500", role=TargetRole.GATEWAY)
    found = Loop().tick(frame(1.0, {"e": {}}, targets=(lost,))).find("target-unreachable")
    assert found is not None and found.scope == Scope(ScopeKind.TARGET, "gw")


def surge(factor: float) -> set[str]:
    loop, first = Loop(), 0.0
    for t in range(1, 160):
        first += 20.0 * (factor if t > 120 else 1.0)
        route = {
            "arrivals": first,
            "attempts": first,
            "first_sent": first,
            "retry_sent": 0.0,
            "upstream_2xx": first,
        }
        last = loop.tick(
            frame(
                float(t),
                {"e": {"requests_waiting": 0.0}},
                routes={"llm": route},
                where=topology(("e",), routes=("llm",)),
            )
        )
    return slugs(last)


def test_demand_surge_and_its_control() -> None:
    assert "demand-surge" in surge(2.0)
    assert "demand-surge" not in surge(1.1)


def failing(errors: float, rejected: float) -> Analysis:
    loop, bad = Loop(), 0.0
    for t in range(1, 160):
        bad += errors if t > 120 else 0.0
        row = {
            "requests_by_finish_reason.stop": 10.0 * t, "requests_by_finish_reason.error": bad,
            "admission_rejections": rejected * t,
        }  # fmt: skip
        last = loop.tick(frame(float(t), {"e": row}))
    return last


def test_success_regression_and_rejections_and_their_controls() -> None:
    assert failing(3.0, 0.0).find("success-regression", POOL)
    assert not failing(0.1, 0.0).find("success-regression")
    assert failing(0.0, 1.0).find("requests-rejected")
    assert not failing(0.0, 0.0).findings
