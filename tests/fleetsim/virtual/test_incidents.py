import pytest

from tests.fleetsim.virtual.fake_gateway import attempt
from tests.fleetsim.virtual.fleet import Fleet


def test_crashed_engine_refuses_keeps_its_gpus_and_its_place_at_the_gateway() -> None:
    fleet = Fleet()
    held = attempt()
    fleet["engine-1"].server.offer(held)
    assert fleet.inflict("crash", targets=["engine-1"], xid=79) == ["engine-1"]
    fleet.run(1000)
    replica = fleet["engine-1"]
    assert fleet.states["engine-1"] == "crashed" and replica.xid == 79 and replica.allocated
    assert fleet.gateway.of(held) == [(0.0, "0")]
    assert "engine-1" in fleet.gateway.members and not replica.server.listening
    assert [a.end for a in fleet.pool.allocations(1000.0)] == [1000.0, 1000.0]


def test_crashed_engine_restarts_by_itself_where_the_cluster_does_that() -> None:
    fleet = Fleet(cluster={"restart_s": 10.0})
    fleet.crash("engine-1")
    fleet.run(9.9)
    assert fleet.states["engine-1"] == "crashed"
    fleet.run(0.2)
    assert fleet.states["engine-1"] == "warming"
    fleet.run(60)
    assert fleet.states["engine-1"] == "ready" and fleet["engine-1"].since == 70.0 and fleet["engine-1"].xid == 0
    assert fleet["engine-1"].server.listening and not fleet.gateway.draining


def test_recover_mends_speed_hang_and_crash() -> None:
    fleet = Fleet()
    fleet.inflict("slow", targets=["engine-0"], g=3.0)
    fleet.inflict("hang", targets=["engine-0"])
    fleet.crash("engine-1")
    asked = attempt()
    fleet["engine-0"].server.offer(asked)
    fleet.run(50)
    assert fleet.gateway.of(asked) == []
    fleet.inflict("recover")
    fleet.run(70)
    assert fleet.gateway.of(asked)[-1][1] == "finished"
    assert fleet.states == {"engine-0": "ready", "engine-1": "ready"}


def test_slow_engine_is_slower_by_its_factors_and_by_its_node() -> None:
    def seconds(*events: tuple[str, dict[str, object]]) -> float:
        fleet = Fleet()
        for kind, fields in events:
            fleet.inflict(kind, **fields)
        asked = attempt(output_tokens=100)
        fleet["engine-0"].server.offer(asked)
        fleet.run(100)
        return fleet.gateway.of(asked)[-1][0]

    healthy = seconds()
    node = ("node", {"node": 0, "state": "slow", "g": 1.5})
    assert seconds(("slow", {"g": 2.0})) == pytest.approx(2 * healthy)
    assert seconds(("slow", {"g": 2.0}), node) == pytest.approx(3 * healthy)
    assert seconds(node, ("node", {"node": 0, "state": "well"})) == pytest.approx(healthy)
    assert seconds(("node", {"node": 1, "state": "slow", "g": 1.5})) == pytest.approx(healthy)


def test_new_process_on_a_slow_node_is_slow_too() -> None:
    fleet = Fleet(cold_start_s=1.0)
    fleet.inflict("node", node=1, state="slow", g=2.0)
    fleet.inflict("deploy", targets=["engine-0", "engine-1"], build="b2")
    fleet.run(10)
    asked = [attempt(), attempt()]
    for k in range(2):
        fleet[f"engine-{k}"].server.offer(asked[k])
    fleet.run(100)
    healthy, slow = (fleet.gateway.of(a)[-1][0] - 10 for a in asked)
    assert slow == pytest.approx(2 * healthy)


def test_node_takes_all_its_replicas_down_and_they_wait_for_it() -> None:
    fleet = Fleet(engines=4, cluster={"replicas_per_node": 2, "restart_s": 5.0})
    assert fleet.inflict("node", node=1, state="down") == ["engine-2", "engine-3"]
    fleet.run(100)
    assert [s for _, s in sorted(fleet.states.items())] == ["ready", "ready", "crashed", "crashed"]
    fleet.inflict("node", node=1, state="well")
    assert fleet.states["engine-2"] == "warming"
    fleet.run(60)
    assert set(fleet.states.values()) == {"ready"}


def test_warming_replica_goes_down_with_its_node() -> None:
    fleet = Fleet()
    fleet.pool.scale(3)
    fleet.run(1)
    fleet.inflict("node", node=2, state="down")
    fleet.run(100)
    assert fleet.states["engine-2"] == "crashed"


def test_nothing_is_placed_on_a_node_that_is_down() -> None:
    fleet = Fleet(max_replicas=3)
    fleet.inflict("node", node=2, state="down")
    fleet.pool.scale(3)
    fleet.run(100)
    assert fleet.states["engine-2"] == "pending"
    fleet.inflict("node", node=2, state="well")
    assert fleet.states["engine-2"] == "warming" and fleet["engine-2"].node == 2


def test_reclaimed_replica_drains_for_its_notice_and_is_replaced() -> None:
    fleet = Fleet(cluster={"spot": ["engine-1"], "schedulable_replicas": 2})
    held = attempt(output_tokens=3000)
    fleet["engine-1"].server.offer(held)
    assert fleet.inflict("reclaim", targets=["engine-1"], notice_s=30.0) == ["engine-1"]
    assert fleet.pool.wanted == 2 and fleet.gateway.draining == {"engine-1"}
    # The GPUs are still taken.
    assert fleet.states == {"engine-0": "ready", "engine-1": "draining", "engine-2": "pending"}
    fleet.run(30)
    assert fleet.gateway.of(held)[-1] == (30.0, "0")
    assert fleet.states == {"engine-0": "ready", "engine-2": "warming"}
    assert [(a.start, a.end) for a in fleet.pool.allocations(40.0)] == [(0.0, 40.0), (0.0, 30.0), (30.0, 40.0)]


def test_reclaim_shortens_a_drain_that_is_going_on() -> None:
    fleet = Fleet(cluster={"spot": ["engine-1"]})
    fleet["engine-1"].server.offer(attempt(output_tokens=3000))
    fleet.pool.scale(1)
    fleet.inflict("reclaim", targets=["engine-1"], notice_s=5.0)
    fleet.run(5)
    assert fleet.states == {"engine-0": "ready"}


def test_deploy_drains_then_serves_with_the_new_build_and_its_speed() -> None:
    fleet = Fleet(builds={"engine-0": "b0"})
    assert [r.build for r in fleet.pool.replicas] == ["b0", "b1"]
    held = attempt(output_tokens=300)
    fleet["engine-0"].server.offer(held)
    fleet.inflict("deploy", targets=["engine-0"], build="b2", g_prefill=1.25, g_decode=1.08)
    assert fleet.states["engine-0"] == "draining" and fleet.gateway.draining == {"engine-0"}
    fleet.run(30)
    assert fleet.gateway.of(held)[-1][1] == "finished"
    assert fleet.states["engine-0"] == "warming" and not fleet["engine-0"].server.listening
    fleet.run(60)
    replica = fleet["engine-0"]
    assert (fleet.states["engine-0"], replica.build, replica.degradation.g_decode) == ("ready", "b2", 1.08)
    assert not fleet.gateway.draining
    assert [a.replica for a in fleet.pool.allocations(90.0)] == ["engine-0", "engine-1"]


def test_crash_while_a_deploy_drains_starts_the_new_build_at_once() -> None:
    fleet = Fleet()
    fleet["engine-0"].server.offer(attempt(output_tokens=3000))
    fleet.inflict("deploy", targets=["engine-0"], build="b2")
    fleet.run(1)
    fleet.crash("engine-0")
    assert fleet.states["engine-0"] == "warming" and fleet["engine-0"].build == "b2"


def test_crash_while_leaving_is_the_end() -> None:
    fleet = Fleet(cluster={"restart_s": 1.0})
    fleet["engine-1"].server.offer(attempt(output_tokens=3000))
    fleet.pool.scale(1)
    fleet.crash("engine-1")
    assert fleet.states == {"engine-0": "ready"}
    fleet.run(100)
    assert fleet.states == {"engine-0": "ready"}


def test_node_that_fails_takes_who_is_leaving_for_good() -> None:
    fleet = Fleet()
    fleet["engine-1"].server.offer(attempt(output_tokens=3000))
    fleet.pool.scale(1)
    fleet.inflict("node", node=1, state="down")
    assert fleet.states == {"engine-0": "ready"}


def test_faults_of_those_that_are_gone_hit_nobody() -> None:
    fleet = Fleet()
    fleet.pool.scale(1)
    fleet.run(1)
    assert fleet.inflict("crash", targets=["engine-1"]) == []
    assert fleet.states == {"engine-0": "ready"}


def test_capacity_that_comes_back_starts_who_waits() -> None:
    fleet = Fleet(max_replicas=4)
    fleet.inflict("capacity", schedulable_replicas=1)
    assert fleet.pool.ready == 2  # what runs stays
    fleet.pool.scale(3)
    fleet.run(100)
    assert fleet.states["engine-2"] == "pending"
    fleet.inflict("capacity", schedulable_replicas=3)
    assert fleet.states["engine-2"] == "warming"


def test_flush_empties_the_caches_of_its_targets() -> None:
    fleet = Fleet()

    def ask() -> None:
        for name in ("engine-0", "engine-1"):
            fleet[name].server.offer(attempt(prefix=((1, 320),), output_tokens=2))
        fleet.run(5)

    ask()
    fleet.crash("engine-1")
    assert fleet.inflict("flush") == ["engine-0"]
    fleet.inflict("recover")
    fleet.run(100)
    ask()
    ask()
    found = []
    for name in ("engine-0", "engine-1"):
        metrics = fleet[name].server.metrics
        assert metrics is not None
        found.append(metrics.seen(1, 0.0).cached_prompt_tokens)
    assert found == [320, 320]
