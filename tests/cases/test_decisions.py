"""What the planner does in the cases: through history, analyzers and planner, in mode act."""

from __future__ import annotations

import pytest

from actuators.model import Lever
from analyzers.model import ClientBehaviour, PoolSettings, Slo
from inferostat.planner import ScalingPolicy
from tests.cases import adapter
from tests.cases.pipeline import Pipeline

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not adapter.CASES.is_dir(), reason="the case files are not beside the project"),
]

LIMITS = (Lever.BREAKER, Lever.ADMISSION, Lever.RETRY_BUDGET)


def test_c25_frozen_gauges_scale_nothing_and_cut_no_weight() -> None:
    pipeline = Pipeline(replicas=2.0)
    stale_at = []
    for frame in adapter.frames("C25.csv", adapter.engine):
        pipeline.tick(frame)
        analysis = pipeline.loop.last
        assert analysis is not None
        if analysis.find("gauges-stale"):
            stale_at.append(frame.at)
    assert stale_at
    assert stale_at[0] <= 375.0
    assert [at for at, value in pipeline.moves(Lever.SCALE) if at >= 300.0 and (value or 0) > 2.0] == []
    assert pipeline.moves(Lever.WEIGHT) == []


def test_c26_a_hung_engine_is_no_reason_to_scale() -> None:
    pipeline = Pipeline(replicas=4.0, addresses=("ep", "b", "c", "d"))
    hung_at = []
    for frame in adapter.frames("C26.csv", adapter.engine):
        pipeline.tick(frame)
        analysis = pipeline.loop.last
        assert analysis is not None
        assert analysis.find("gauges-stale") is None
        if analysis.find("engine-hung"):
            hung_at.append(frame.at)
    assert hung_at[0] <= 360.0
    assert pipeline.moves(Lever.SCALE) == []


def test_c39_one_bad_sample_scales_nothing_down() -> None:
    pipeline = Pipeline(replicas=29.0, scaling=ScalingPolicy(inflight_per_replica=100.0))
    for frame in adapter.frames("C39.csv", adapter.inflight):
        pipeline.tick(frame)
    assert [value for _, value in pipeline.moves(Lever.SCALE) if value is not None and value < 29.0] == []


def test_c40_load_on_the_border_does_not_flap() -> None:
    pipeline = Pipeline(replicas=2.0, scaling=ScalingPolicy(inflight_per_replica=16.0))
    for frame in adapter.frames("C40.csv", adapter.inflight):
        pipeline.tick(frame)
    assert pipeline.moves(Lever.SCALE) == []


def test_c43_a_stale_endpoint_gets_no_more_and_no_less() -> None:
    pipeline = Pipeline(replicas=3.0, addresses=("ep1", "ep2", "ep3"))
    for frame in adapter.aged_frames("C43.csv"):
        pipeline.tick(frame)
    assert [move for move in pipeline.actions if move.key.target == "ep1"] == []


def test_c44_a_storm_tightens_the_retry_budget_and_sheds() -> None:
    pipeline = Pipeline(replicas=4.0, settings=PoolSettings(client=ClientBehaviour(30.0, "first_token", 2)))
    for frame in adapter.frames("C44.csv", adapter.storm):
        pipeline.tick(frame)
    first = {lever: moves[0] for lever in LIMITS if (moves := pipeline.moves(lever))}
    assert first[Lever.RETRY_BUDGET][0] <= 345.0
    assert Lever.BREAKER in first or Lever.ADMISSION in first


def test_c44_control_a_plain_surge_is_scaled_and_not_shed() -> None:
    pipeline = Pipeline(replicas=4.0, settings=PoolSettings(client=ClientBehaviour(30.0, "first_token", 2)))
    for frame in adapter.frames("C44.control.csv", adapter.storm):
        pipeline.tick(frame)
    assert {lever: pipeline.moves(lever) for lever in LIMITS} == {lever: [] for lever in LIMITS}
    assert pipeline.moves(Lever.SCALE)[0][1] > 4.0  # type: ignore[operator]


def test_c49_demand_seen_at_the_exit_is_scaled_for_the_queue_that_grows() -> None:
    pipeline = Pipeline(replicas=1.0, settings=PoolSettings(slo=Slo(ttft_s=0.5)))
    for frame in adapter.frames("C49.csv", adapter.exit_side):
        pipeline.tick(frame)
    at, replicas = pipeline.moves(Lever.SCALE)[0]
    assert at <= 240.0
    assert replicas == 2.0
    reason = next(action.reason for action in pipeline.actions if action.key.lever is Lever.SCALE)
    assert "ttft" in reason or "requests_waiting" in reason or "queue" in reason
