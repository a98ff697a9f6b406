"""The policies against the real fleet in virtual time: what they look at is there, what they write is taken."""

import pytest

from fleetsim.policies.oracle import Oracle, plans
from fleetsim.policies.registry import POLICIES
from fleetsim.virtual.play import play
from tests.fleetsim.policies.looks import scenario

SMALL = scenario(
    engines=3,
    max_replicas=6,
    load=0.5,
    cold_start_s=5,
    duration_s=90,
    trigger={"start_s": 20, "end_s": 60},
    timeline=[{"at_s": 20, "kind": "load", "factor": 2}, {"at_s": 60, "kind": "load"}],
)


@pytest.mark.parametrize("name", list(POLICIES))
def test_each_policy_plays(name: str) -> None:
    run = play(SMALL, name)
    assert run.policy == name
    assert {m.actor for m in run.moves if m.lever == "scale"} <= {name}
    assert len(run.calls) > 300
    assert sum(call.outcome == "ok" for call in run.calls) > 0.1 * len(run.calls)


def test_a_queue_driven_scaler_sees_the_surge_and_the_oracle_sees_it_coming() -> None:
    reacting = [m.t for m in play(SMALL, "hpa-queue").moves if not m.down]
    assert reacting and min(reacting) > 20
    plan = next(p for p in plans(SMALL) if p.name == "full")
    foreseeing = [m.t for m in play(SMALL, Oracle(plan)).moves if not m.down]
    assert foreseeing and min(foreseeing) <= 15


def test_the_same_seed_is_the_same_run() -> None:
    first, second = (play(SMALL, "dynamo", seed=3) for _ in range(2))
    assert first.moves == second.moves
    assert [c.ttft_s for c in first.calls] == [c.ttft_s for c in second.calls]
