"""Weights: taken out, cut and given back; silence moves nothing."""

from __future__ import annotations

from actuators.model import Lever
from tests.inferostat.planner.scene import Scene, address, endpoint_scope, finding, moves, storm


def test_a_hung_engine_is_taken_out_and_the_reason_says_so() -> None:
    scene = Scene()
    scene.findings = [finding("engine-hung", endpoint_scope(1))]
    decision = scene.decide(50.0)
    assert scene.lever(Lever.WEIGHT, address(1)) == 0.0
    assert "engine-hung on engine-1" in decision.sentence()


def test_a_verdict_that_is_not_sure_takes_nothing_out() -> None:
    scene = Scene()
    scene.findings = [finding("engine-hung", endpoint_scope(1), confidence=0.7)]
    assert scene.decide(50.0).actions == ()


def test_no_more_than_the_allowed_share_may_be_out_and_never_the_last() -> None:
    scene = Scene()
    scene.findings = [finding("engine-down", endpoint_scope(index)) for index in range(4)]
    decision = scene.decide(50.0)
    assert moves(decision.actions, Lever.WEIGHT) == [0.0]
    assert any("out already" in item.steps[0].reason for item in decision.considered)
    alone = Scene(endpoints=1)
    alone.findings = [finding("engine-down", endpoint_scope(0))]
    assert alone.decide(50.0).actions == ()


def test_an_outlier_is_cut_by_steps_each_after_the_last_was_verified() -> None:
    scene = Scene()
    scene.findings = [finding("endpoint-outlier", endpoint_scope(2), signal="itl")]
    scene.measure("itl_mean_s", 0.060)
    scene.decide(50.0)
    assert scene.lever(Lever.WEIGHT, address(2)) == 50.0
    scene.decide(80.0)
    assert scene.lever(Lever.WEIGHT, address(2)) == 50.0, "the first cut has not shown its effect"
    scene.measure("itl_mean_s", 0.050)
    verdicts = scene.decide(81.0).verdicts
    assert [verdict.state for verdict in verdicts] == ["verified"]
    assert scene.lever(Lever.WEIGHT, address(2)) == 25.0


def test_a_cut_without_effect_is_undone_and_the_lever_left_alone() -> None:
    scene = Scene()
    scene.findings = [finding("endpoint-outlier", endpoint_scope(2), signal="itl")]
    scene.measure("itl_mean_s", 0.060)
    scene.decide(50.0)
    decision = scene.decide(50.0 + 46.0)
    assert [verdict.state for verdict in decision.verdicts] == ["ineffective"]
    assert [f.slug for f in decision.findings] == ["actuation-ineffective"]
    assert scene.lever(Lever.WEIGHT, address(2)) == 100.0
    for second in range(97, 380, 10):
        scene.decide(float(second))
    assert scene.lever(Lever.WEIGHT, address(2)) == 100.0
    scene.decide(50.0 + 46.0 + 301.0)
    assert scene.lever(Lever.WEIGHT, address(2)) == 50.0, "tried again after the quarantine"


def test_an_endpoint_comes_back_in_steps_once_nothing_speaks_against_it() -> None:
    scene = Scene()
    scene.findings = [finding("engine-hung", endpoint_scope(1))]
    scene.decide(50.0)
    scene.findings = []
    weights = []
    for second in range(51, 200):
        scene.decide(float(second))
        weights.append(scene.lever(Lever.WEIGHT, address(1)))
    assert list(dict.fromkeys(weights)) == [0.0, 25.0, 50.0, 100.0]
    assert weights.index(25.0) >= 29


def test_silence_gives_nothing_back() -> None:
    scene = Scene()
    scene.findings = [finding("engine-hung", endpoint_scope(1))]
    scene.decide(50.0)
    scene.findings, scene.stale = [], {1}
    for second in range(51, 200):
        scene.decide(float(second))
    assert scene.lever(Lever.WEIGHT, address(1)) == 0.0


def test_in_a_storm_weights_wait_except_for_an_engine_that_hangs() -> None:
    scene = Scene()
    storm(scene)
    scene.measure("itl_mean_s", 0.060)
    scene.findings += [
        finding("endpoint-outlier", endpoint_scope(2)),
        finding("engine-hung", endpoint_scope(1)),
    ]
    scene.decide(50.0)
    assert scene.lever(Lever.WEIGHT, address(2)) == 100.0
    assert scene.lever(Lever.WEIGHT, address(1)) == 0.0


def test_a_storm_does_not_keep_out_an_engine_that_is_well_again() -> None:
    scene = Scene()
    scene.measure("itl_mean_s", 0.060)
    scene.findings = [finding("engine-hung", endpoint_scope(1))]
    scene.decide(50.0)
    assert scene.lever(Lever.WEIGHT, address(1)) == 0.0
    scene.findings = []
    storm(scene)
    scene.decide(70.0)
    assert scene.lever(Lever.WEIGHT, address(1)) == 0.0, "nothing has spoken against it for 20 s only"
    scene.decide(81.0)
    assert scene.lever(Lever.WEIGHT, address(1)) == 25.0
    scene.decide(120.0)
    assert scene.lever(Lever.WEIGHT, address(1)) == 50.0
