"""The gateway's statistics against a body that a real Envoy 1.40 gave for the same requests."""

from __future__ import annotations

import re
from pathlib import Path

from collector.catalog import product
from fleetsim.virtual.envoy_stats import render, seen
from tests.fleetsim.virtual.gateway_parts import FakePort, Rig

FIXTURE = Path(__file__).parents[2] / "fixtures" / "envoy-1.40.prom"
LINE = re.compile(r"^(\w+)\{(.*)\} (\S+)$")


def samples(body: str) -> dict[str, float]:
    """Values by name and sorted labels; every line must be a sample or a type."""
    found = {}
    for line in body.splitlines():
        if not line.startswith("# TYPE "):
            match = LINE.match(line)
            assert match is not None, line
            key = f"{match[1]}{{{','.join(sorted(match[2].split(',')))}}}"
            assert key not in found, key
            found[key] = float(match[3])
    return found


def types(body: str) -> dict[str, str]:
    lines = [line.split() for line in body.splitlines() if line.startswith("# TYPE ")]
    assert len({line[2] for line in lines}) == len(lines)
    return {line[2]: line[3] for line in lines}


def played() -> Rig:
    """The requests behind the fixture: 5 first attempts and 3 retries answered, 2 refused by the breaker, 1 shed, and
    1 whose client left."""
    rig = Rig(engines=0)
    port = FakePort(rig.simulation, rig.gateway)
    rig.gateway.add("engine-0", "127.0.0.1:29001", port)
    for retry in (0, 0, 0, 0, 0, 1, 1, 1):
        attempt = rig.send(retry=retry)
        rig.run(0.05)
        port.finish(attempt)
    rig.gateway.set_limit("breaker", 0.0)
    rig.send()
    rig.send()
    rig.gateway.set_limit("breaker", None)
    rig.gateway.set_limit("admission", 0.0)
    rig.send()
    rig.gateway.set_limit("admission", None)
    rig.gateway.cancel(rig.send())
    return rig


def test_names_labels_types_and_values_are_those_of_envoy() -> None:
    ours, real = render(played().gateway), FIXTURE.read_text()
    real_types, real_samples = types(real), samples(real)
    assert {name: real_types.get(name) for name in types(ours)} == types(ours)
    wrong = {
        key: (value, real_samples.get(key))
        for key, value in samples(ours).items()
        if value != real_samples.get(key) and "_rq_time_" not in key
    }
    assert wrong == {}


def test_classes_without_an_answer_are_shown_where_envoy_shows_them() -> None:
    ours, real = samples(render(Rig().gateway)), samples(FIXTURE.read_text())
    family = "envoy_http_downstream_rq_xx"
    assert {key for key in ours if key.startswith(family)} == {
        key for key in real if key.startswith(family) and 'prefix="ingress"' in key
    }
    assert not any(key.startswith("envoy_cluster_upstream_rq_xx") for key in ours)


def test_histograms_have_envoys_buckets_and_counts() -> None:
    ours, real = samples(render(played().gateway)), samples(FIXTURE.read_text())
    timed = [key for key in ours if "_rq_time_" in key]
    assert {key for key in timed if key not in real} == set()
    counts = {key: (ours[key], real[key]) for key in timed if "_rq_time_count" in key}
    assert len(counts) == 4 and all(a == b for a, b in counts.values())
    assert ours['envoy_cluster_upstream_rq_time_sum{envoy_cluster_name="llm"}'] > 8 * 49


def test_all_that_the_catalog_reads_is_there() -> None:
    rig = Rig(engines=2, outlier_detection={}, admission_control={})
    rig.ports[0].listening = False
    for _ in range(20):
        rig.send()
        rig.run(0.1)
    shown = set(types(render(rig.gateway)))
    wanted = {family.key for signal in product("envoy").signals.values() for family in signal.families}
    assert {name for name in wanted if name not in shown} == set()
    assert "envoy_http_admission_control_rq_rejected" in shown


def test_failures_are_counted_as_a_real_envoy_counts_them() -> None:
    # The shape that a real Envoy showed for one dead endpoint: refusals are errors but no requests of the endpoint.
    rig = Rig(engines=1)
    rig.ports[0].listening = False
    rig.send()
    rig.run(0.1)
    found = samples(render(rig.gateway))
    cluster, endpoint = (
        '{envoy_cluster_name="llm"}',
        '{envoy_cluster_name="llm",envoy_endpoint_address="10.0.0.1:8000"}',
    )
    assert {
        "cx_connect_fail": found[f"envoy_cluster_upstream_cx_connect_fail{cluster}"],
        "rq_total": found[f"envoy_cluster_upstream_rq_total{cluster}"],
        "retry": found[f"envoy_cluster_upstream_rq_retry{cluster}"],
        "limit": found[f"envoy_cluster_upstream_rq_retry_limit_exceeded{cluster}"],
        "error": found[f"envoy_cluster_endpoint_rq_error{endpoint}"],
        "endpoint": found[f"envoy_cluster_endpoint_rq_total{endpoint}"],
    } == {"cx_connect_fail": 2, "rq_total": 0, "retry": 1, "limit": 1, "error": 2, "endpoint": 0}


def test_what_policies_see_is_what_is_counted() -> None:
    rig = played()
    rig.send(retry=2)
    gateway = seen(rig.gateway)
    assert (gateway.requests, gateway.first_attempts, gateway.retries) == (13, 9, 4)
    assert (gateway.answered_2xx, gateway.answered_4xx, gateway.answered_5xx) == (8, 1, 2)
    assert (gateway.shed, gateway.active, gateway.pending) == (3, 1, 0)
    assert gateway.scraped_at == rig.simulation.now
