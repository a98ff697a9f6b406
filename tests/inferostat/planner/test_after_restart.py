"""The planner right after a restart of the agent, and on a real clock: little is known, and cycles are never even."""

from __future__ import annotations

from dataclasses import replace

from actuators.model import Lever, LeverKey
from inferostat.planner import Mode, ScalingPolicy
from inferostat.planner.state import Episode, LeverMemory
from tests.inferostat.planner.scene import POOL, Scene, finding, moves, storm

BREAKER = LeverKey(Lever.BREAKER, POOL, POOL)
SCALE = LeverKey(Lever.SCALE, POOL, POOL)


def restarted_with_a_limit(value: float) -> Scene:
    """The limit is held from before; no queue has formed below it, so that no capacity has been learnt."""
    scene = Scene()
    scene.values[BREAKER] = value
    scene.measure("queue_wait_s", 0.0)
    scene.state = scene.state.with_memory(BREAKER, LeverMemory(owned=True, held=value, moved_at=99.0))
    scene.state = scene.state.with_episode(POOL, Episode(100.0, "taken up", 100.0))
    return scene


def test_a_limit_held_from_before_is_given_back_though_no_capacity_is_known() -> None:
    scene = restarted_with_a_limit(8.0)
    for second in range(101, 160):
        in_flight = 50.0 if scene.lever(Lever.BREAKER) is None else min(50.0, float(scene.lever(Lever.BREAKER) or 0))
        scene.measure("gateway_active", in_flight)
        scene.decide(float(second))
    values = [value for value in moves(scene.history, Lever.BREAKER) if value is not None]
    assert values == sorted(values)
    assert max(values) > 150.0, "it stays until it is well above what is in flight"
    assert scene.lever(Lever.BREAKER) is None
    assert POOL not in scene.state.episodes


def test_with_neither_capacity_nor_requests_in_flight_known_the_limit_stays() -> None:
    scene = restarted_with_a_limit(8.0)
    for second in range(101, 130):
        scene.decide(float(second))
    assert scene.lever(Lever.BREAKER) == 8.0


def test_replicas_come_down_on_a_clock_whose_cycles_never_fall_on_the_windows_edge() -> None:
    scene = Scene()
    scaling = ScalingPolicy(down_stabilisation_s=60.0, inflight_per_replica=40.0)
    scene.policy = replace(scene.policy, scaling=scaling)
    scene.measure("inflight_total", 10.0)
    scene.measure("engine_waiting", 0.0)
    at = 1000.0
    for number in range(16):
        at += 4.9 + 0.03 * number
        scene.decide(at)
    assert moves(scene.history, Lever.SCALE) == [3.0]
    assert scene.history[0].at - 1004.9 >= 60.0


def test_only_as_many_replicas_are_expected_as_may_be_asked_for() -> None:
    scene = Scene()
    scene.bound(Lever.SCALE, maximum=6.0, mode=Mode.ACT)
    scene.policy = replace(scene.policy, scaling=ScalingPolicy(up_stabilisation_s=0.0, inflight_per_replica=10.0))
    scene.measure("inflight_total", 100.0)
    (action,) = scene.decide(100.0).actions
    assert action.after == 6.0
    assert action.expect is not None
    assert action.expect.bound == 6.0


def test_admitting_everything_is_no_move_where_nothing_is_turned_away() -> None:
    scene = Scene()
    storm(scene, wait_s=9.0)
    scene.bound(Lever.BREAKER, mode=Mode.OBSERVE)
    scene.measure("capacity_mu", 100.0)
    scene.findings = [finding("retry-storm")]
    scene.decide(100.0)
    assert moves(scene.history, Lever.ADMISSION) == []
    scene.measure("capacity_mu", 16.0)
    scene.decide(101.0)
    assert moves(scene.history, Lever.ADMISSION) == [19.0]
