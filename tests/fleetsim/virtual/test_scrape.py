from typing import Any

import pytest

from fleetsim.virtual.exporters import DeviceExporter
from fleetsim.virtual.observation import GatewaySeen, Observation
from fleetsim.virtual.scrape import Observer
from fleetsim.virtual.telemetry import Telemetry
from tests.fleetsim.virtual.fake_gateway import attempt
from tests.fleetsim.virtual.fleet import Fleet
from tests.fleetsim.virtual.test_telemetry import event


class Look:
    """A fleet with somebody who looks at it. The gateway has counted one request a second."""

    def __init__(self, *events: Any, **fields: Any) -> None:
        self.fleet = Fleet(**fields)
        devices = DeviceExporter(self.fleet.simulation, self.fleet.pool)
        telemetry = Telemetry(self.fleet.pool, devices, lambda now: "", events)
        self._observer = Observer(self.fleet.pool, telemetry, gateway_seen, (1, 4))

    def after(self, seconds: float) -> Observation:
        self.fleet.run(seconds)
        return self._observer.observe(self.fleet.simulation.now)


def gateway_seen(now: float) -> GatewaySeen:
    return GatewaySeen(now, now, now, 0.0, now, 0.0, 0.0, 0.0, 0.0, 0.0)


def test_observation_has_the_cluster_and_fresh_values() -> None:
    look = Look()
    look.fleet["engine-0"].server.offer(attempt(prompt_tokens=500, output_tokens=1000))
    look.fleet.pool.scale(3)
    seen = look.after(2.0)
    assert (seen.now, seen.wanted, seen.minimum, seen.maximum) == (2.0, 3, 1, 4)
    assert [(r.name, r.state, r.since) for r in seen.replicas] == [
        ("engine-0", "ready", 0.0),
        ("engine-1", "ready", 0.0),
        ("engine-2", "warming", 0.0),
    ]
    busy, idle, cold = (r.engine for r in seen.replicas)
    assert busy is not None and idle is not None and cold is None
    assert (busy.scraped_at, busy.running, busy.waiting, busy.prompt_tokens) == (2.0, 1, 0, 500)
    assert (idle.running, idle.generation_tokens, idle.kv_tokens) == (0, 0, 16 * look.fleet.pool.profile.num_blocks)
    assert seen.gateway == gateway_seen(2.0)
    assert (len(seen.ready), seen.coming) == (2, 1)


def test_stopped_and_prefill_replicas_are_not_shown() -> None:
    look = Look(prefill_engines=1)
    look.fleet.pool.scale(1)
    assert [r.name for r in look.after(1.0).replicas] == ["engine-0"]


def test_last_good_scrape_lasts_five_minutes() -> None:
    look = Look(event(10, "refused", targets=["engine-0"]))
    look.after(9.0)
    kept = look.after(299.0).replicas[0].engine
    assert kept is not None and kept.scraped_at == 9.0
    gone, other = (r.engine for r in look.after(2.0).replicas)
    assert gone is None and other is not None and other.scraped_at == 310.0


def test_crashed_replica_shows_its_last_scrape() -> None:
    look = Look()
    look.after(1.0)
    look.fleet.crash("engine-0")
    replica = look.after(1.0).replicas[0]
    assert replica.state == "crashed" and replica.engine is not None and replica.engine.scraped_at == 1.0


def test_stale_values_are_old_and_their_time_is_not() -> None:
    look = Look(event(2, "stale"))
    look.fleet["engine-0"].server.offer(attempt(output_tokens=2000))
    fresh = look.after(1.0).replicas[0].engine
    stale = look.after(5.0)
    engine = stale.replicas[0].engine
    assert fresh is not None and engine is not None and stale.gateway is not None
    assert engine.generation_tokens == fresh.generation_tokens and engine.scraped_at == 6.0
    assert (stale.gateway.requests, stale.gateway.scraped_at) == (1.0, 6.0)


def test_lagging_values_are_of_then() -> None:
    look = Look(event(10, "lag", lag_s=5.0))
    look.fleet["engine-0"].server.offer(attempt(output_tokens=2000))
    tokens = []
    for _ in range(14):
        engine = look.after(1.0).replicas[0].engine
        assert engine is not None
        tokens.append(engine.generation_tokens or 0.0)
    assert tokens[9:] == tokens[4:9] and tokens[:9] == sorted(set(tokens[:9]))


@pytest.mark.parametrize("mode", ["missing", "nan"])
def test_families_that_are_gone_are_not_known(mode: str) -> None:
    families = ("vllm:num_requests_waiting", "vllm:time_to_first_token_seconds")
    look = Look(event(0, mode, families=families))
    seen = look.after(1.0)
    engine = seen.replicas[0].engine
    assert engine is not None and seen.gateway is not None
    assert (engine.waiting, engine.ttft_sum, engine.ttft_count) == (None, None, None)
    assert (engine.running, engine.itl_count) == (0, 0)


def test_gateway_is_unknown_when_refused_or_without_its_families() -> None:
    for what in (event(1, "refused", targets=["gateway"]), event(1, "nan", families=("envoy_cluster_upstream_rq",))):
        look = Look(what)
        assert look.after(0.5).gateway is not None
        assert look.after(1.0).gateway is None
