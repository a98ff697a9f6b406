"""The storm analyzer on a toy fleet: early in a storm, silent in a steady state and in a mild surge."""

from __future__ import annotations

from itertools import pairwise

import pytest

from analyzers import storm
from analyzers.build import pool_scope
from analyzers.model import Analysis, ClientBehaviour, PoolSettings, Scope, ScopeKind
from tests.analyzers.fleet_model import Fleet
from tests.analyzers.frames import Loop, frame, slugs, topology

POOL = Scope(ScopeKind.POOL, "default")
CAPACITY = 32.8  # requests/s of the toy fleet, measured at saturation
STATES = {"retry-storm-incipient", "retry-storm", "retry-storm-collapsed", "retry-storm-recovering"}
WHOLE_ANSWER = PoolSettings(client=ClientBehaviour(10, "answer", 2))
FIRST_TOKEN = PoolSettings(client=ClientBehaviour(5, "first_token", 2))


def run(fleet: Fleet, seconds: int, settings: PoolSettings) -> list[Analysis]:
    loop = Loop(settings=settings, only=storm.analyze)
    return [loop.tick(made) for made in fleet.frames(seconds)]


def first(analyses: list[Analysis], slug: str) -> float | None:
    return next((a.at for a in analyses if a.find(slug)), None)


def slow(t: float, engine: str) -> float:
    return 1.7 if t >= 30 else 1.0


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("whole_answer", [True, False])
def test_incipient_before_the_first_client_gives_up_and_collapse_later(seed: int, whole_answer: bool) -> None:
    fleet = Fleet(
        rate=lambda t: 0.8 * CAPACITY,
        slowness=slow,
        seed=seed,
        on_answer=whole_answer,
        aborts=whole_answer,
        timeout_s=10 if whole_answer else 5,
    )
    analyses = run(fleet, 75, WHOLE_ANSWER if whole_answer else FIRST_TOKEN)
    warned = first(analyses, "retry-storm-incipient")
    assert warned is not None and 30 < warned <= 42
    assert analyses[int(warned) - 1].measure("fail_share", POOL) == 0.0  # before a client has given up
    looping, collapsed = first(analyses, "retry-storm"), first(analyses, "retry-storm-collapsed")
    assert looping is not None and collapsed is not None and warned < looping < collapsed
    assert analyses[-1].find("retry-storm-collapsed")
    amplification = analyses[-1].measure("amplification", POOL)
    assert amplification is not None and 2 < amplification <= 3.4


def test_abandoned_work_is_seen_where_engines_do_not_abort() -> None:
    fleet = Fleet(rate=lambda t: 0.8 * CAPACITY, slowness=slow, on_answer=False, aborts=False, timeout_s=5)
    last = run(fleet, 75, FIRST_TOKEN)[-1]
    backlog, active = last.measure("engine_backlog", POOL), last.measure("gateway_active", POOL)
    assert backlog is not None and active is not None
    assert last.measure("abandoned_work", POOL) == backlog - active > 200


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("settings", [WHOLE_ANSWER, FIRST_TOKEN])
@pytest.mark.parametrize("spike", [1.0, 1.3])
def test_silent_when_steady_and_in_a_mild_spike(seed: int, settings: PoolSettings, spike: float) -> None:
    answer = settings is WHOLE_ANSWER
    fleet = Fleet(
        rate=lambda t: 0.8 * CAPACITY * (spike if 30 <= t < 75 else 1.0),
        seed=seed,
        on_answer=answer,
        aborts=answer,
        timeout_s=settings.client.timeout_s,
    )
    for analysis in run(fleet, 110, settings):
        assert not slugs(analysis) & STATES, analysis.at


def test_capacity_is_learnt_while_requests_wait_and_kept_afterwards() -> None:
    fleet = Fleet(rate=lambda t: 45.0 if t < 20 else 10.0, timeout_s=600)
    analyses = run(fleet, 60, PoolSettings())
    assert analyses[2].measure("capacity_mu", POOL) is None
    for at in (15, 59):
        mu = analyses[at].measure("capacity_mu", POOL)
        assert mu == pytest.approx(CAPACITY, rel=0.1)


def test_recovers_only_after_it_was_calm_for_half_a_minute() -> None:
    fleet = Fleet(
        rate=lambda t: 0.8 * CAPACITY if t < 50 else 0.2 * CAPACITY,
        slowness=lambda t, e: 1.7 if 30 <= t < 50 else 1.0,
    )
    analyses = run(fleet, 130, WHOLE_ANSWER)
    recovering = first(analyses, "retry-storm-recovering")
    assert recovering is not None
    over = next(a for a in analyses if a.at > recovering and not slugs(a) & STATES)
    calm_s = over.measure("storm_calm_s", pool_scope("default"))
    assert calm_s is not None
    assert calm_s >= 30
    assert not slugs(analyses[-1]) & STATES


def route(at: float, retries: float, failures: float) -> dict[str, float]:
    """A gateway that took 20 first attempts/s, with so many retries and failures a second from t=60 on."""
    late = max(0.0, at - 60)
    return {
        "arrivals": 20 * at + retries * late, "attempts": 20 * at + retries * late, "first_sent": 20 * at,
        "retry_sent": retries * late, "overflow": 0.0, "upstream_5xx": failures * late,
        "upstream_2xx": 20 * at - failures * late,
    }  # fmt: skip


def gateway_only(retries: float, failures: float) -> list[Analysis]:
    loop = Loop(settings=WHOLE_ANSWER, only=storm.analyze)
    where = topology(("e",), routes=("llm",))
    made = (
        frame(float(t), {"e": {"requests_waiting": 60.0 * max(0, t - 60), "gateway_attempts": 20.0 * t}},
              routes={"llm": route(t, retries, failures)}, where=where)
        for t in range(1, 120)
    )  # fmt: skip
    return [loop.tick(one) for one in made]


def test_no_storm_where_failures_bring_no_retries() -> None:
    analyses = gateway_only(retries=0.0, failures=4.0)
    assert not any(slugs(a) & STATES for a in analyses[90:])


def test_storm_where_the_same_failures_bring_retries() -> None:
    assert slugs(gateway_only(retries=12.0, failures=14.0)[-1]) & STATES


def test_without_a_gateway_offered_is_unknown_and_demand_is_inferred() -> None:
    loop = Loop()
    for t in range(1, 25):
        analysis = loop.tick(
            frame(
                float(t),
                {
                    "e": {
                        "requests_running": 8.0,
                        "requests_waiting": 2.0 * t,
                        "requests_by_finish_reason.stop": 5.0 * t,
                    }
                },
            )
        )
    assert analysis.measure("offered_rate", POOL) is None
    assert analysis.measure("amplification", POOL) is None
    assert analysis.measure("demand_rate", POOL) == pytest.approx(7.0, rel=0.05)


def test_our_own_refusals_are_no_failures_and_first_attempts_count_them() -> None:
    loop = Loop()
    where = topology(("e",), routes=("llm",))
    for t in range(1, 30):
        row = {
            "arrivals": 30.0 * t, "attempts": 20.0 * t, "first_sent": 15.0 * t, "retry_sent": 5.0 * t,
            "overflow": 10.0 * t, "first_503": 5.0 * t, "retry_503": 5.0 * t, "upstream_5xx": 10.0 * t,
            "upstream_2xx": 20.0 * t, "client_disconnects": 0.0,
        }  # fmt: skip
        analysis = loop.tick(frame(float(t), {"e": {"requests_waiting": 0.0}}, routes={"llm": row}, where=where))
    assert analysis.measure("offered_rate", POOL) == pytest.approx(20.0)
    assert analysis.measure("amplification", POOL) == pytest.approx(1.5)
    assert analysis.measure("fail_share", POOL) == 0.0


def test_the_state_does_not_alternate_near_a_threshold() -> None:
    fleet = Fleet(rate=lambda t: 0.8 * CAPACITY, slowness=lambda t, e: 1.7 if 30 <= t < 75 else 1.0)
    analyses = run(fleet, 180, WHOLE_ANSWER)
    states = [next(iter(sorted(slugs(a) & STATES)), None) for a in analyses]
    changes = sum(1 for before, after in pairwise(states) if before != after)
    assert changes <= 8


def test_vulnerability_is_a_lower_bound_before_the_limit_was_ever_seen() -> None:
    settings = PoolSettings(client=ClientBehaviour(10, "answer", 2), max_num_seqs=32)
    analyses = run(Fleet(rate=lambda t: 0.3 * CAPACITY), 30, settings)
    assert analyses[-1].measure("capacity_mu", POOL) is None
    nu = analyses[-1].measure("vulnerability", POOL)
    assert nu is not None
    assert 0.0 < nu <= 3 * 0.3 * 1.1
