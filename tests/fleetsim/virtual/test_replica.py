import pytest

from fleetsim.timing import Degradation
from fleetsim.virtual.replica import address_of
from tests.fleetsim.virtual.fake_gateway import attempt
from tests.fleetsim.virtual.fleet import Fleet


def test_addresses_carry_into_the_third_octet() -> None:
    assert [address_of(i) for i in (0, 249, 250, 9000)] == [
        "10.0.0.1:8000",
        "10.0.0.250:8000",
        "10.0.1.1:8000",
        "10.0.36.1:8000",
    ]


def test_reading_tells_the_period_only() -> None:
    fleet = Fleet()
    replica, profile = fleet["engine-0"], fleet.pool.profile
    replica.server.offer(attempt(prompt_tokens=3000, output_tokens=2))
    fleet.run(1.0)
    busy = replica.reading(profile, 1.0, 1.0)
    # 3000 tokens of 71 us and the weights
    assert 0.2 < busy.busy < 0.5 and busy.tensor > 0.05 and busy.dram > 0.005
    fleet.run(1.0)
    idle = replica.reading(profile, 1.0, 1.0)
    assert (idle.busy, idle.tensor, idle.dram, idle.loaded) == (0.0, 0.0, 0.0, True)
    assert (idle.uuid, idle.hostname) == ("GPU-0000", "engine-0")


def test_hung_device_is_busy_with_nothing_and_a_slow_one_throttled() -> None:
    fleet = Fleet()
    replica, profile = fleet["engine-0"], fleet.pool.profile
    replica.degradation = Degradation(1.5)
    replica.server.hang(True)
    fleet.run(1.0)
    reading = replica.reading(profile, 1.0, 2.0)
    assert (reading.busy, reading.tensor, reading.slowdown) == (1.0, 0.0, 3.0)


@pytest.mark.parametrize("output_tokens", [2, 200])
def test_new_process_begins_its_totals_at_nothing(output_tokens: int) -> None:
    fleet = Fleet(cold_start_s=0.2, cluster={"restart_s": 0.0})
    replica, profile = fleet["engine-0"], fleet.pool.profile
    replica.server.offer(attempt(prompt_tokens=2000, output_tokens=2))
    fleet.run(1.0)
    replica.reading(profile, 1.0, 1.0)
    fleet.crash("engine-0")
    fleet.run(0.5)
    replica.server.offer(attempt(prompt_tokens=2000, output_tokens=output_tokens))
    fleet.run(0.5)
    reading = replica.reading(profile, 1.0, 1.0)
    assert 0.15 < reading.busy < 0.55
