from fleetsim.events import GatewayEvent
from fleetsim.policies.registry import build
from fleetsim.settings import AdmissionControl, BoundedQueue, OutlierDetection
from tests.fleetsim.policies.looks import Bench, ready, scenario

CROWDED = scenario(
    gateway={
        "outlier_detection": OutlierDetection(),
        "admission_control": AdmissionControl(),
        "queue": BoundedQueue(inflight_per_replica=8, capacity=9),
    },
    timeline=[{"at_s": 5, "kind": "load", "factor": 2}],
)


def test_none_takes_every_limit_of_the_gateway_away() -> None:
    bare = build("none", CROWDED).prepare(CROWDED).gateway
    assert (bare.retry_budget_percent, bare.outlier_detection, bare.admission_control, bare.queue) == (None,) * 4
    assert bare.balancing == CROWDED.gateway.balancing


def test_static_asks_for_half_as_many_again_once_and_within_the_bounds() -> None:
    bench = Bench(build("static", CROWDED), replicas=5)
    assert bench.look(0.0, ready(0.0, 5)) == 8
    bench.pool.wanted = 3
    assert bench.look(15.0, ready(15.0, 3)) == 3
    assert Bench(build("static", CROWDED), replicas=5, bounds=(1, 6)).look(0.0, []) == 6


def test_envoy_defaults_stand_from_the_start() -> None:
    plain = scenario(timeline=[{"at_s": 5, "kind": "load", "factor": 2}])
    prepared = build("envoy-defaults", plain).prepare(plain)
    assert prepared.gateway.outlier_detection == OutlierDetection()
    assert (prepared.gateway.retry_budget_percent, prepared.gateway.retry_budget_minimum) == (20.0, 3)
    assert prepared.timeline == (GatewayEvent(at_s=0, kind="gateway", breaker=1024), *plain.timeline)


def test_each_of_the_others_brings_its_one_setting() -> None:
    plain = scenario()
    assert build("sre-throttling", plain).prepare(plain).clients.throttle_k == 2
    assert build("envoy-admission-control", plain).prepare(plain).gateway.admission_control == AdmissionControl()


def test_hpa_envoy_is_both() -> None:
    plain = scenario()
    policy = build("hpa-envoy", plain)
    assert policy.prepare(plain) == build("envoy-defaults", plain).prepare(plain)
    bench = Bench(policy)
    assert bench.uniform(0.0, waiting=10.0) == 8
    assert bench.log.moves[0].actor == "hpa-envoy"
