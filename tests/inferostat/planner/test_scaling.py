"""Replicas: up on demand that lasts, down only on full knowledge, and never twice for what is coming."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actuators.model import Lever, LeverKey
from inferostat.planner import ScalingPolicy
from tests.inferostat.planner.scene import POOL, Scene, endpoint_scope, finding, moves, storm


def loaded(scene: Scene, offered: float, per_replica: float = 8.0) -> None:
    scene.measure("offered_rate", offered)
    scene.measure("capacity_per_endpoint", per_replica)
    scene.measure("engine_waiting", 0.0)


def run(scene: Scene, start: int, end: int, step: int = 1) -> None:
    for second in range(start, end, step):
        scene.decide(float(second))


def test_offered_load_above_capacity_scales_up_after_the_stabilisation() -> None:
    scene = Scene()
    loaded(scene, 38.4)  # 8/s a replica at 85 %: six replicas
    run(scene, 0, 15)
    assert scene.history == []
    scene.decide(15.0)
    assert moves(scene.history, Lever.SCALE) == [6.0]


def test_a_burst_shorter_than_the_stabilisation_moves_nothing() -> None:
    scene = Scene()
    loaded(scene, 38.4)
    run(scene, 0, 10)
    loaded(scene, 24.0)
    run(scene, 10, 14)
    loaded(scene, 38.4)
    run(scene, 14, 24)
    assert scene.history == []


def test_replicas_that_are_coming_count_and_are_not_asked_for_again() -> None:
    scene = Scene()
    loaded(scene, 25.6)
    scene.findings = [finding("saturated", signal="requests_waiting")]
    run(scene, 0, 17)
    assert moves(scene.history, Lever.SCALE) == [5.0]
    run(scene, 17, 120)
    assert moves(scene.history, Lever.SCALE) == [5.0]
    assert "requests_waiting" in scene.history[0].reason


def test_replicas_that_never_come_are_taken_back() -> None:
    scene = Scene()
    scene.policy = replace(scene.policy, scaling=ScalingPolicy(ready_within_s=60.0))
    loaded(scene, 25.6)
    scene.findings = [finding("saturated")]
    run(scene, 0, 100)
    assert moves(scene.history, Lever.SCALE) == [5.0, 4.0]
    assert scene.history[1].undo_of == scene.history[0].id
    run(scene, 100, 300)
    assert moves(scene.history, Lever.SCALE) == [5.0, 4.0], "quarantined: not asked for again"


@pytest.mark.parametrize("missing", ["offered_rate", "capacity_per_endpoint", "engine_waiting", "reading"])
def test_unknown_data_never_lower_a_replica_count(missing: str) -> None:
    scene = Scene()
    loaded(scene, 8.0)
    run(scene, 0, 200)
    if missing == "reading":
        scene.unknown = {LeverKey(Lever.SCALE, POOL, POOL)}
    else:
        scene.measure(missing, None)
    run(scene, 200, 700)
    assert moves(scene.history, Lever.SCALE) == []


def test_down_one_step_after_the_whole_window_agreed() -> None:
    scene = Scene()
    loaded(scene, 8.0)
    run(scene, 0, 300)
    assert scene.history == []
    run(scene, 300, 302)
    assert moves(scene.history, Lever.SCALE) == [3.0]


@pytest.mark.parametrize("reason", ["waiting", "storm", "coming", "margin"])
def test_what_holds_a_scale_down(reason: str) -> None:
    scene = Scene()
    loaded(scene, 8.0)
    if reason == "waiting":
        scene.measure("engine_waiting", 3.0)
    if reason == "storm":
        storm(scene)
        loaded(scene, 8.0)
    if reason == "coming":
        scene.ready = 3
    if reason == "margin":
        loaded(scene, 17.0)  # three replicas by 85 %, but over 70 % of what three can do
    run(scene, 0, 400)
    assert all(value is None or value >= 4.0 for value in moves(scene.history, Lever.SCALE))


def test_the_queue_of_hung_engines_is_no_demand() -> None:
    scene = Scene(endpoints=2)
    scene.values[LeverKey(Lever.SCALE, POOL, POOL)] = 2.0
    scene.ready = 2
    scene.findings = [
        finding("queue-growing"),
        *(finding("engine-hung", endpoint_scope(index), confidence=0.6) for index in range(2)),
    ]
    run(scene, 0, 60)
    assert moves(scene.history, Lever.SCALE) == []
