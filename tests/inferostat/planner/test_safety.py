"""The storm programme: engage, hold, drain, give back, be gone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.model import Lever
from analyzers.model import ClientBehaviour, PoolSettings
from inferostat.planner import Mode
from tests.inferostat.planner.scene import Scene, finding, moves, storm


def test_a_storm_engages_breaker_and_retry_budget_at_once() -> None:
    scene = Scene()
    storm(scene)
    decision = scene.decide(100.0)
    # 4 engines hold 32 each and finish 4/s x 2 s (a fifth of the clients' 10 s)
    assert moves(decision.actions, Lever.BREAKER) == [4 * (32 + 4 * 2)]
    assert moves(decision.actions, Lever.RETRY_BUDGET) == [20.0]
    assert "queue wait 4.0 s" in decision.sentence()


def test_work_without_a_client_is_subtracted_down_to_the_floor() -> None:
    scene = Scene()
    storm(scene, backlog=230.0, active=100.0)
    assert moves(scene.decide(100.0).actions, Lever.BREAKER) == [160.0 - 130.0]
    scene = Scene()
    storm(scene, backlog=2000.0, active=100.0)
    assert moves(scene.decide(100.0).actions, Lever.BREAKER) == [8.0]


def test_clients_that_wait_for_the_first_token_get_a_third_of_their_timeout() -> None:
    scene = Scene()
    scene.policy = replace(scene.policy, settings=PoolSettings(client=ClientBehaviour(6.0, "first_token", 2)))
    storm(scene)
    assert moves(scene.decide(100.0).actions, Lever.BREAKER) == [4 * (32 + 4 * 2)]


def test_without_a_storm_or_with_a_short_queue_nothing_is_limited() -> None:
    scene = Scene()
    storm(scene)
    scene.findings = [finding("saturated"), finding("vulnerable")]
    assert moves(scene.decide(100.0).actions, Lever.BREAKER) == []
    storm(scene, wait_s=0.5)
    assert scene.decide(101.0).actions == ()


def test_the_limit_follows_and_every_limit_is_off_in_the_end() -> None:
    scene = Scene()
    storm(scene)
    scene.decide(100.0)
    scene.findings = []
    scene.measure("queue_wait_s", 0.2)
    scene.measure("abandoned_work", 0.0)
    for second in range(101, 200):
        scene.decide(float(second))
    limits = moves(scene.history, Lever.BREAKER)
    assert limits[-1] is None
    assert all(b > a for a, b in pairwise(limits[:-1]) if a is not None and b is not None)
    assert scene.lever(Lever.RETRY_BUDGET) is None
    assert scene.state.episodes == {}


def test_admission_helps_only_when_the_breaker_is_at_its_floor() -> None:
    scene = Scene()
    storm(scene, wait_s=40.0, backlog=2000.0, active=100.0)
    for second in range(100, 110):
        scene.decide(float(second))
    # seven tenths of what the pool finishes, over what arrives
    assert moves(scene.history, Lever.ADMISSION)[0] == round(100 * 0.7 * 16.0 / 60.0)
    assert "at its floor" in next(a for a in scene.history if a.key.lever is Lever.ADMISSION).reason


def test_admission_replaces_a_breaker_that_may_not_be_used() -> None:
    scene = Scene()
    scene.bound(Lever.BREAKER, mode=Mode.OBSERVE)
    storm(scene)
    decision = scene.decide(100.0)
    assert moves(decision.actions, Lever.BREAKER) == []
    assert moves(decision.actions, Lever.ADMISSION) == [round(100 * 0.7 * 16.0 / 60.0)]


@pytest.mark.parametrize("lost", ["queue_wait_s", "abandoned_work", "all"])
def test_unknown_data_move_no_limit(lost: str) -> None:
    scene = Scene()
    storm(scene)
    scene.decide(100.0)
    before = scene.lever(Lever.BREAKER)
    storm(scene, wait_s=30.0, backlog=900.0, active=100.0)
    if lost == "all":
        scene.measures.clear()
    else:
        scene.measure(lost, None)
    scene.decide(105.0)
    assert scene.lever(Lever.BREAKER) == before


@given(
    wait=st.one_of(st.none(), st.floats(0, 500)),
    abandoned=st.one_of(st.none(), st.floats(0, 5000)),
    mu=st.one_of(st.none(), st.floats(0.1, 50)),
    batch=st.one_of(st.none(), st.floats(1, 512)),
)
def test_a_limit_is_never_below_its_floor_and_never_set_on_unknown(
    wait: float | None, abandoned: float | None, mu: float | None, batch: float | None
) -> None:
    scene = Scene()
    storm(scene)
    scene.measure("queue_wait_s", wait)
    scene.measure("abandoned_work", abandoned)
    for index in range(4):
        scene.measure("capacity_mu", mu, index)
        scene.measure("batch_limit", batch, index)
    scene.decide(100.0)
    limit = scene.lever(Lever.BREAKER)
    if limit is not None:
        assert limit >= 8.0
    if None in (wait, abandoned, mu, batch):
        assert limit is None


def test_advice_is_not_repeated_every_second() -> None:
    scene = Scene()
    scene.policy = replace(scene.policy, mode=Mode.ADVISE)
    storm(scene)
    for second in range(100, 109):
        scene.decide(float(second))
    assert len(moves(scene.history, Lever.BREAKER)) == 1
    assert scene.lever(Lever.BREAKER) is None


def test_an_engine_that_is_not_learnt_yet_counts_like_the_others_and_a_silent_one_not_at_all() -> None:
    scene = Scene()
    storm(scene)
    scene.measure("capacity_mu", None, 3)
    assert moves(scene.decide(100.0).actions, Lever.BREAKER) == [4 * (32 + 4 * 2)]
    scene = Scene(stale={3})
    storm(scene)
    assert moves(scene.decide(100.0).actions, Lever.BREAKER) == [3 * (32 + 4 * 2)]
