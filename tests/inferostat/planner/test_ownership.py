"""Whose lever is it: set again what was forgotten, give way to another writer, stop while paused."""

from __future__ import annotations

from dataclasses import replace

from actuators.model import Lever, LeverKey
from inferostat.planner import Mode, StepName
from tests.inferostat.planner.scene import POOL, Scene, endpoint_scope, finding, moves, storm

BREAKER = LeverKey(Lever.BREAKER, POOL, POOL)


def engaged() -> Scene:
    scene = Scene()
    storm(scene)
    scene.decide(100.0)
    scene.measure("queue_wait_s", 1.5)  # between calm and allowed: nothing to move
    scene.decide(105.0)
    return scene


def test_a_limit_that_a_restarted_gateway_forgot_is_set_again() -> None:
    scene = engaged()
    scene.values[BREAKER] = None
    decision = scene.decide(110.0)
    assert moves(decision.actions, Lever.BREAKER) == [160.0]
    assert "forgot" in decision.sentence()


def test_another_writers_value_is_left_alone_and_reported_until_it_moves_on() -> None:
    scene = engaged()
    scene.values[BREAKER] = 300.0
    for second in (110.0, 111.0, 140.0):
        decision = scene.decide(second)
        assert [f.slug for f in decision.findings] == ["other-writer"]
        assert moves(decision.actions, Lever.BREAKER) == []
    scene.measure("queue_wait_s", 9.0)
    blocked = [item for item in scene.decide(150.0).considered if item.key == BREAKER]
    assert blocked[0].steps[-1].name is StepName.BLOCKED


def test_pause_and_observe_stop_every_lever_and_say_so() -> None:
    for change in ("pause", "observe"):
        scene = Scene()
        storm(scene)
        scene.findings.append(finding("engine-hung", endpoint_scope(1)))
        scene.paused = change == "pause"
        if change == "observe":
            scene.policy = replace(scene.policy, mode=Mode.OBSERVE)
        decision = scene.decide(100.0)
        assert decision.actions == ()
        reasons = {item.steps[-1].reason for item in decision.considered}
        assert reasons == {"acting is paused" if change == "pause" else "mode observe"}


def test_an_ignored_write_is_not_taken_for_done() -> None:
    scene = Scene(deaf=True)
    storm(scene)
    scene.decide(100.0)
    memory = scene.state.memory(BREAKER)
    assert not memory.owned
    assert memory.trial is None
