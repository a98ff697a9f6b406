"""Frames: who stands in which row, which cell has which state, and what may be called idle."""

from __future__ import annotations

import re

import pytest

from collector.model import SignalState, TargetRole
from collector.sources.fetch import Body
from collector.sources.frame import FrameBuilder
from collector.sources.record import TargetRecord
from collector.sources.targets import Target, target
from tests.collector.sources.loopback import BUSY, counted

ENVOY = """\
# TYPE envoy_cluster_upstream_rq_total counter
envoy_cluster_upstream_rq_total{envoy_cluster_name="llm"} 900
envoy_cluster_upstream_rq_total{envoy_cluster_name="other"} 7
# TYPE envoy_cluster_endpoint_rq_total counter
envoy_cluster_endpoint_rq_total{envoy_cluster_name="llm",envoy_endpoint_address="127.0.0.1:9001"} 400
envoy_cluster_endpoint_rq_total{envoy_cluster_name="llm",envoy_endpoint_address="127.0.0.1:9002"} 500
envoy_cluster_endpoint_rq_total{envoy_cluster_name="llm",envoy_endpoint_address="127.0.0.1:9009"} 1
envoy_cluster_endpoint_rq_total{envoy_cluster_name="other",envoy_endpoint_address="127.0.0.1:9001"} 7
# TYPE envoy_cluster_endpoint_healthy gauge
envoy_cluster_endpoint_healthy{envoy_cluster_name="llm",envoy_endpoint_address="127.0.0.1:9001"} 1
envoy_cluster_endpoint_healthy{envoy_cluster_name="llm",envoy_endpoint_address="127.0.0.1:9002"} 0
"""
DCGM = """\
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",modelName="H100"} 91
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",modelName="H100"} 15
DCGM_FI_DEV_GPU_UTIL{gpu="2",UUID="GPU-c",modelName="H100",pod="e1"} 40
"""
NOW = 1_800_000_000.0


def record(one: Target, body: bytes | str, at: float = NOW) -> TargetRecord:
    made = TargetRecord(one)
    assert made.take(Body(body if isinstance(body, bytes) else body.encode(), None), at, 0.01) is None
    return made


def engine(name: str, port: int, **labels: str) -> Target:
    return target(f"127.0.0.1:{port}", name=name, pool="chat", gpus=2, labels=labels)


def gateway(name: str = "edge", **labels: str) -> Target:
    return target("127.0.0.1:9901", TargetRole.GATEWAY, name=name, pool="chat", labels=labels)


def test_gateway_rows_join_endpoints_by_address_and_routes_by_cluster() -> None:
    records = [
        record(engine("e0", 9001), BUSY),
        record(engine("e1", 9002), BUSY),
        record(engine("e2", 9003), BUSY),
        record(gateway(cluster="llm"), ENVOY),
    ]
    frame = FrameBuilder(15.0).build(records, NOW + 1.0)
    assert frame.endpoints.rows == ("e0", "e1", "e2")
    assert frame.endpoints.column("gateway_attempts")[:2].tolist() == [407.0, 500.0]
    assert frame.endpoints.cell("e2", "gateway_attempts").state is SignalState.NEVER_SEEN
    assert frame.endpoints.column("gateway_healthy")[:2].tolist() == [1.0, 0.0]
    assert frame.routes.rows == ("llm",)
    assert frame.routes.cell("llm", "attempts").value == 900.0
    assert frame.topology.routes["llm"].gateway == "edge"
    assert frame.topology.pool_routes("chat") == ("llm",)
    assert frame.topology.pools["chat"].endpoints == ("e0", "e1", "e2")
    assert frame.endpoints.cell("e0", "generation_tokens").age_s == 1.0


def test_without_a_cluster_label_all_clusters_are_routes() -> None:
    frame = FrameBuilder(15.0).build([record(gateway(), ENVOY)], NOW)
    assert frame.routes.rows == ("llm", "other")


def test_two_gateways_add_up_and_the_unhealthy_view_wins() -> None:
    second = ENVOY.replace('9001"} 1\n', '9001"} 0\n')
    records = [
        record(engine("e0", 9001), BUSY),
        record(gateway("edge", cluster="llm"), ENVOY),
        record(gateway("edge-2", cluster="llm"), second),
    ]
    frame = FrameBuilder(15.0).build(records, NOW)
    assert frame.endpoints.cell("e0", "gateway_attempts").value == 814.0
    assert frame.endpoints.cell("e0", "gateway_healthy").value == 0.0
    assert frame.routes.rows == ("llm", "edge-2/llm")
    assert frame.topology.routes["edge-2/llm"].pool == "chat"


def test_a_sum_with_a_stale_part_is_no_sum() -> None:
    records = [
        record(engine("e0", 9001), BUSY, NOW + 20.0),
        record(gateway("edge", cluster="llm"), ENVOY, NOW),
        record(gateway("edge-2", cluster="llm"), ENVOY, NOW + 20.0),
    ]
    frame = FrameBuilder(15.0).build(records, NOW + 20.0)
    assert frame.endpoints.cell("e0", "gateway_attempts").state is SignalState.STALE
    assert frame.endpoints.cell("e0", "generation_tokens").state is SignalState.KNOWN
    assert frame.routes.cell("edge-2/llm", "attempts").state is SignalState.KNOWN


def test_devices_join_endpoints_by_uuid_or_pod() -> None:
    records = [
        record(engine("e0", 9001, device="GPU-a,GPU-x"), BUSY),
        record(engine("e1", 9002), BUSY),
        record(target("127.0.0.1:9400", TargetRole.GPU, name="dcgm", pool="gpus"), DCGM),
    ]
    frame = FrameBuilder(15.0).build(records, NOW)
    assert frame.devices.rows == ("GPU-a", "GPU-b", "GPU-c")
    assert frame.devices.column("gpu_util").tolist() == pytest.approx([0.91, 0.15, 0.40])
    found = {name: (d.endpoint, d.pool, d.model) for name, d in frame.topology.devices.items()}
    assert found == {
        "GPU-a": ("e0", "chat", "H100"),
        "GPU-b": (None, "gpus", "H100"),
        "GPU-c": ("e1", "chat", "H100"),
    }
    assert frame.topology.pool_devices("chat") == ("GPU-a", "GPU-c")


def test_a_target_that_never_answered_has_a_row_of_never_seen() -> None:
    frame = FrameBuilder(15.0).build([TargetRecord(engine("e0", 9001, build="b2"))], NOW)
    assert set(frame.endpoints.state[0].tolist()) == {SignalState.NEVER_SEEN}
    assert frame.endpoints.histogram("e0", "ttft") is None
    assert frame.topology.endpoints["e0"].build == "b2"
    assert not frame.targets[0].up
    assert frame.targets[0].error is None


def test_a_family_that_was_there_before_is_missing_not_never_seen() -> None:
    one = record(engine("e0", 9001), BUSY)
    without = b"\n".join(line for line in BUSY.split(b"\n") if b"num_requests_waiting" not in line)
    assert one.take(Body(without, None), NOW + 5.0, 0.01) is None
    frame = FrameBuilder(15.0).build([one], NOW + 5.0)
    assert frame.endpoints.cell("e0", "requests_waiting").state is SignalState.MISSING
    assert frame.endpoints.cell("e0", "spec_draft_tokens").state is SignalState.NEVER_SEEN
    assert "requests_waiting" in frame.targets[0].missed


def empty(body: bytes) -> bytes:
    """The body of an engine with nothing in it."""
    return re.sub(rb"(?m)^(vllm:num_requests_(?:running|waiting)\{.*\}) .*$", rb"\1 0.0", body)


def states(body: bytes, until: int, freshness_s: float = 15.0) -> list[SignalState]:
    builder, one = FrameBuilder(freshness_s), TargetRecord(engine("e0", 9001))
    seen = []
    for tick in range(until):
        assert one.take(Body(body, None), NOW + 10.0 * tick, 0.01) is None
        frame = builder.build([one], NOW + 10.0 * tick)
        seen.append(frame.endpoints.cell("e0", "requests_running").state)
    return seen


def test_idle_needs_a_minute_of_empty_and_flat() -> None:
    assert states(empty(BUSY), 8) == [SignalState.KNOWN] * 6 + [SignalState.IDLE] * 2
    assert states(BUSY, 10) == [SignalState.KNOWN] * 10


def test_idle_ends_with_the_first_token_and_covers_histograms_and_kv() -> None:
    builder, one = FrameBuilder(15.0), TargetRecord(engine("e0", 9001))
    for tick in range(10):
        body = counted(empty(BUSY), 100.0 if tick < 8 else 101.0)
        assert one.take(Body(body, None), NOW + 10.0 * tick, 0.01) is None
        frame = builder.build([one], NOW + 10.0 * tick)
        expected = SignalState.IDLE if tick in (6, 7) else SignalState.KNOWN
        for name in ("requests_running", "requests_waiting", "kv_cache_usage"):
            assert frame.endpoints.cell("e0", name).state is expected
        assert frame.endpoints.histogram_state["ttft"][0] == expected
        assert frame.endpoints.cell("e0", "generation_tokens").state is SignalState.KNOWN


def test_values_carried_over_prove_no_idleness() -> None:
    builder, one = FrameBuilder(500.0), record(engine("e0", 9001), empty(BUSY))
    for tick in range(12):
        frame = builder.build([one], NOW + 10.0 * tick)
        assert frame.endpoints.cell("e0", "requests_running").state is SignalState.KNOWN
