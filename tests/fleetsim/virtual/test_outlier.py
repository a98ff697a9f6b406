from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.virtual.attempt import Attempt
from fleetsim.virtual.gateway import Gateway
from tests.fleetsim.virtual.gateway_parts import FakePort, Rig


def ejected(gateway: Gateway) -> list[str]:
    return [name for name, endpoint in gateway.members.endpoints.items() if endpoint.ejected_at is not None]


def failing(rig: Rig, *broken: int) -> None:
    """Every engine answers at once, `broken` ones with an error."""

    def error(port: FakePort, attempt: Attempt) -> None:
        port.fail(attempt, 503)

    for i, port in enumerate(rig.ports):
        port.reply = error if i in broken else FakePort.finish


def play(rig: Rig, requests: int, each_s: float) -> None:
    for _ in range(requests):
        rig.send()
        rig.run(each_s)


def test_errors_in_a_row_eject_at_once_and_a_success_between_saves() -> None:
    rig = Rig(engines=2, outlier_detection={"consecutive_5xx": 5})
    endpoint = rig.gateway.members.endpoints["engine-0"]
    assert rig.gateway.outlier is not None
    for _ in range(4):
        rig.gateway.outlier.failed(endpoint)
    rig.gateway.outlier.succeeded(endpoint)
    for _ in range(4):
        rig.gateway.outlier.failed(endpoint)
    assert ejected(rig.gateway) == []
    rig.gateway.outlier.failed(endpoint)
    assert ejected(rig.gateway) == ["engine-0"]
    [move] = rig.log.moves
    assert (move.actor, move.lever, move.target, move.before, move.after) == ("envoy", "weight", "engine-0", 100.0, 0.0)


def test_an_ejected_endpoint_gets_nothing_until_a_tick_after_its_time_and_longer_each_time() -> None:
    rig = Rig(engines=2, outlier_detection={"consecutive_5xx": 1, "interval_s": 10.0, "base_ejection_s": 25.0})
    failing(rig, 0)
    play(rig, 20, 0.01)
    assert ejected(rig.gateway) == ["engine-0"]
    failed = rig.client.told.count("503")
    play(rig, 100, 0.01)
    assert rig.client.told.count("503") == failed == 1
    rig.run(30.0 - rig.simulation.now - 0.01)
    assert ejected(rig.gateway) == ["engine-0"]
    rig.run(0.02)
    assert ejected(rig.gateway) == []
    play(rig, 20, 0.01)  # ejected again, now for 50 s
    assert ejected(rig.gateway) == ["engine-0"]
    rig.run(70.0 - rig.simulation.now)
    assert ejected(rig.gateway) == ["engine-0"]
    rig.run(21.0)
    assert ejected(rig.gateway) == []
    assert [m.after for m in rig.log.moves] == [0.0, 100.0, 0.0, 100.0]


def test_quiet_intervals_make_the_next_ejection_short_again() -> None:
    rig = Rig(engines=2, outlier_detection={"consecutive_5xx": 1, "base_ejection_s": 10.0})
    endpoint, outlier = rig.gateway.members.endpoints["engine-0"], rig.gateway.outlier
    assert outlier is not None
    outlier.failed(endpoint)
    assert endpoint.ejections == 1
    rig.run(35.0)
    assert endpoint.ejections == 0 and ejected(rig.gateway) == []


def test_refused_connections_eject_too() -> None:
    rig = Rig(engines=2, retries=0, outlier_detection={"consecutive_5xx": 3})
    rig.ports[1].listening = False
    rig.ports[0].reply = FakePort.finish
    play(rig, 40, 0.01)
    assert ejected(rig.gateway) == ["engine-1"] and rig.client.told.count("503") == 3


def test_the_success_rate_ejects_who_is_far_below_the_others() -> None:
    options = {"consecutive_5xx": 1000, "success_rate_request_volume": 20, "success_rate_minimum_hosts": 5}
    rig = Rig(engines=10, outlier_detection=options)
    failing(rig)
    turn = iter(range(10**6))

    def sometimes(port: FakePort, attempt: Attempt) -> None:
        port.fail(attempt, 503) if next(turn) % 2 else port.finish(attempt)

    rig.ports[3].reply = sometimes
    play(rig, 500, 0.019)
    assert ejected(rig.gateway) == []
    play(rig, 40, 0.019)  # past the interval's tick
    assert ejected(rig.gateway) == ["engine-3"]
    assert rig.gateway.outlier is not None and rig.gateway.outlier.enforced["success_rate"] == 1


def test_too_few_requests_say_nothing_about_the_success_rate() -> None:
    rig = Rig(engines=10, outlier_detection={"consecutive_5xx": 1000})  # Envoy's volume: 100 an interval
    failing(rig, 3)
    play(rig, 900, 0.02)
    assert ejected(rig.gateway) == []


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.floats(0, 100), st.sets(st.integers(0, 11)))
def test_at_most_the_given_share_is_ejected_but_one_always_may_be(n: int, percent: float, broken: set[int]) -> None:
    rig = Rig(engines=n, outlier_detection={"consecutive_5xx": 1, "max_ejection_percent": percent})
    endpoints, outlier = list(rig.gateway.members.endpoints.values()), rig.gateway.outlier
    assert outlier is not None
    hit = [i for i in sorted(broken) if i < n]
    for i in hit:
        outlier.failed(endpoints[i])
    allowed = max(1, int(percent * n / 100 + 1e-9))
    assert len(ejected(rig.gateway)) == outlier.active == min(len(hit), allowed)
    assert outlier.overflow == len(hit) - outlier.active
