import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.virtual.attempt import Attempt
from tests.fleetsim.virtual.fake_gateway import attempt
from tests.fleetsim.virtual.fleet import Fleet

READY = {"engine-0": "ready", "engine-1": "ready"}


def test_initial_engines_are_warm_and_members() -> None:
    fleet = Fleet()
    assert fleet.states == READY and (fleet.pool.ready, fleet.pool.wanted) == (2, 2)
    assert {n: (address, role) for n, (address, _, role) in fleet.gateway.members.items()} == {
        "engine-0": ("10.0.0.1:8000", "serve"),
        "engine-1": ("10.0.0.2:8000", "serve"),
    }
    assert [r.device for r in fleet.pool.replicas] == ["GPU-0000", "GPU-0001"]
    assert fleet.gateway.members["engine-0"][1].listening and not fleet.gateway.draining


def test_new_replica_loads_for_its_cold_start_before_it_serves() -> None:
    fleet = Fleet()
    fleet.pool.scale(3)
    assert fleet.states["engine-2"] == "warming" and fleet.pool.ready == 2
    assert "engine-2" not in fleet.gateway.members
    fleet.run(59.9)
    assert fleet.states["engine-2"] == "warming" and not fleet["engine-2"].server.listening
    fleet.run(0.2)
    assert fleet.states["engine-2"] == "ready" and fleet["engine-2"].since == 60.0
    assert "engine-2" in fleet.gateway.members


def test_newest_leaves_first_and_finishes_its_work() -> None:
    fleet = Fleet()
    held = attempt(output_tokens=500)
    fleet["engine-1"].server.offer(held)
    fleet.pool.scale(1)
    assert fleet.states == {"engine-0": "ready", "engine-1": "draining"}
    assert fleet.gateway.draining == {"engine-1"}
    fleet.run(60)
    assert fleet.states == {"engine-0": "ready"} and list(fleet.gateway.members) == ["engine-0"]
    (_, first), (done, last) = fleet.gateway.of(held)
    assert (first, last) == ("first", "finished")
    (_, gone) = fleet.pool.allocations(100.0)
    assert done <= gone.end <= done + 0.1


def test_drain_ends_at_its_deadline() -> None:
    fleet = Fleet(cluster={"drain_deadline_s": 2.0})
    held = attempt(output_tokens=1000)
    fleet["engine-1"].server.offer(held)
    fleet.pool.scale(1)
    fleet.run(10)
    assert fleet.gateway.of(held)[-1] == (2.0, "0")
    assert fleet.states == {"engine-0": "ready"}


def test_scale_up_while_one_is_leaving_brings_a_new_one() -> None:
    fleet = Fleet()
    fleet["engine-1"].server.offer(attempt(output_tokens=500))
    fleet.pool.scale(1)
    fleet.pool.scale(2)
    assert fleet.states == {"engine-0": "ready", "engine-1": "draining", "engine-2": "warming"}


def test_warming_one_leaves_before_those_that_serve_and_costs_until_then() -> None:
    fleet = Fleet()
    fleet.pool.scale(3)
    fleet.run(10)
    fleet.pool.scale(2)
    fleet.run(100)
    assert fleet.states == READY and "engine-2" not in fleet.gateway.members
    assert [(a.start, a.end) for a in fleet.pool.allocations(110.0)][-1] == (0.0, 10.0)


def test_only_so_many_as_there_are_gpus_for_and_the_rest_waits() -> None:
    fleet = Fleet(cluster={"schedulable_replicas": 3})
    fleet.pool.scale(4)
    fleet.run(100)
    assert fleet.states == {**READY, "engine-2": "ready", "engine-3": "pending"}
    assert len(fleet.pool.allocations(100.0)) == 3
    # The pending one goes first.
    fleet.pool.scale(3)
    assert "engine-3" not in fleet.states
    fleet.pool.scale(4)
    fleet.pool.retire("engine-0")
    assert fleet.pool.wanted == 3
    fleet.run(1)
    assert fleet.states == {"engine-1": "ready", "engine-2": "ready", "engine-4": "warming"}


def test_more_engines_than_gpus_at_the_start_wait() -> None:
    fleet = Fleet(engines=4, cluster={"schedulable_replicas": 3})
    assert list(fleet.states.values()) == ["ready", "ready", "ready", "pending"]


def test_unschedulable_replicas_stay_pending_and_cost_nothing() -> None:
    fleet = Fleet(unschedulable=True)
    fleet.pool.scale(4)
    fleet.run(1000)
    fleet.pool.retire("engine-0")
    fleet.run(1000)
    assert fleet.states == {"engine-1": "ready", "engine-2": "pending", "engine-3": "pending"}
    assert len(fleet.pool.allocations(2000.0)) == 2


def test_retire_takes_the_named_one_and_refuses_what_is_not_there() -> None:
    fleet = Fleet()
    fleet.pool.retire("engine-0")
    fleet.run(1)
    assert fleet.states == {"engine-1": "ready"} and fleet.pool.wanted == 1
    for name in ("engine-0", "engine-7"):
        with pytest.raises(ValueError, match=name):
            fleet.pool.retire(name)


def test_cold_starts_differ_by_replica_and_seed() -> None:
    def served_at(seed: int) -> list[float]:
        fleet = Fleet(seed=seed, max_replicas=6, cluster={"cold_start_sigma": 0.3})
        fleet.pool.scale(6)
        fleet.run(1000)
        return [r.since for r in fleet.pool.replicas[2:]]

    assert len(set(served_at(1))) == 4
    assert served_at(1) == served_at(1) != served_at(2)


def test_model_error_slows_every_engine() -> None:
    def ended(g: float) -> float:
        fleet = Fleet(g=g)
        asked = attempt()
        fleet["engine-1"].server.offer(asked)
        fleet.run(100)
        return fleet.gateway.of(asked)[-1][0]

    assert ended(1.25) == pytest.approx(1.25 * ended(1.0))


def test_prefill_engines_are_extra_and_not_scaled() -> None:
    fleet = Fleet(prefill_engines=2, cluster={"schedulable_replicas": 2})
    assert fleet.states == {"prefill-0": "ready", "prefill-1": "ready", **READY}
    assert [role for _, _, role in fleet.gateway.members.values()] == ["prefill", "prefill", "decode", "decode"]
    assert (fleet.pool.wanted, fleet.pool.ready) == (2, 2)
    fleet.pool.scale(1)
    fleet.run(1)
    assert fleet.states == {"prefill-0": "ready", "prefill-1": "ready", "engine-0": "ready"}
    assert len({r.address for r in fleet.pool.replicas}) == len({r.device for r in fleet.pool.replicas}) == 4
    with pytest.raises(ValueError, match="prefill-0"):
        fleet.pool.retire("prefill-0")


def test_tokens_of_processes_that_are_gone_count() -> None:
    fleet = Fleet(cold_start_s=1.0, cluster={"restart_s": 1.0})
    fleet["engine-0"].server.offer(attempt(output_tokens=10))
    fleet["engine-1"].server.offer(attempt(output_tokens=20))
    fleet.run(10)
    fleet.crash("engine-0")
    fleet.run(10)
    fleet["engine-0"].server.offer(attempt(output_tokens=7))
    fleet.run(10)
    fleet.pool.scale(1)
    fleet.run(10)
    assert fleet.pool.generated_tokens == 37


def metered_run(fleet: Fleet, until: float) -> float:
    """Run to `until`; replica-seconds of GPUs held meanwhile, from the states between any two calls."""
    simulation, held = fleet.simulation, 0.0
    while simulation.now < until:
        due = simulation._calls[0][0] if simulation._calls else until
        end = min(due, until)
        held += (end - simulation.now) * sum(r.state.value not in ("pending", "stopped") for r in fleet.pool.replicas)
        simulation.run_until(end)
    return held


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    restart_s=st.sampled_from([None, 0.0, 15.0]),
    per_node=st.integers(1, 3),
    unschedulable=st.booleans(),
)
def test_bill_is_the_integral_of_gpus_held_and_never_more_than_there_are(
    seed: int, restart_s: float | None, per_node: int, unschedulable: bool
) -> None:
    quota = 5
    fleet = Fleet(
        seed=seed,
        engines=3,
        max_replicas=6,
        unschedulable=unschedulable,
        cluster={
            "schedulable_replicas": quota,
            "replicas_per_node": per_node,
            "cold_start_sigma": 0.3,
            "restart_s": restart_s,
            "spot": [f"engine-{k}" for k in range(60)],
            "drain_deadline_s": 30.0,
        },
    )
    rng = random.Random(seed)
    offered: list[Attempt] = []
    held = at = 0.0
    for _ in range(30):
        at += rng.expovariate(1 / 15)
        held += metered_run(fleet, at)
        name = rng.choice(fleet.pool.live).name if fleet.pool.live else "engine-0"
        target = {"targets": [name]}
        match rng.randrange(10):
            case 0 | 1:
                fleet.pool.scale(rng.randint(1, 6))
            case 2:
                fleet.inflict("crash", **target, xid=79)
            case 3:
                fleet.inflict("recover", **target)
            case 4:
                fleet.inflict("reclaim", **target, notice_s=rng.choice([0.0, 30.0]))
            case 5:
                fleet.inflict("deploy", **target, build="b2")
            case 6:
                fleet.inflict("node", node=rng.randrange(3), state=rng.choice(["down", "slow", "well"]), g=2.0)
            case 7:
                taken = fleet.pool.placement.taken
                fleet.inflict("capacity", schedulable_replicas=rng.randint(2, quota))
                assert taken <= fleet.pool.placement.taken <= max(taken, fleet.pool.placement.schedulable)
            case _:
                for replica in fleet.pool.live:
                    if replica.server.listening:
                        offered.append(attempt(output_tokens=rng.randint(1, 3000)))
                        replica.server.offer(offered[-1])
        assert fleet.pool.placement.taken == len(fleet.pool.allocated) <= quota
        assert sum(not r.leaving for r in fleet.pool.scalable) == fleet.pool.wanted
        ready = {r.name for r in fleet.pool.live if r.state.value == "ready"}
        assert ready <= set(fleet.gateway.members) and not ready & fleet.gateway.draining
        assert ready <= {r.name for r in fleet.pool.live if r.server.listening}
    held += metered_run(fleet, at + 300)
    allocations = fleet.pool.allocations(at + 300)
    assert sum(a.end - a.start for a in allocations) == pytest.approx(held)
    price = fleet.pool.scenario.hardware.price_usd_per_gpu_hour
    assert sum(a.cost_usd for a in allocations) == pytest.approx(held * 4 * price / 3600)
    ends = [who for _, what, who in fleet.gateway.told if what != "first"]
    assert len(ends) == len(set(ends)) and set(ends) <= set(offered)
