"""Readings: rows, states, aggregation, memory of a target."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from collector.model import Histogram, Level, SignalState
from collector.reading import SELF_ROW, Reading, TargetReader, reading_document

FIXTURES = Path(__file__).parents[1] / "fixtures"
BUSY = (FIXTURES / "live" / "vllm-0.32-busy.prom").read_bytes()
ENVOY = (FIXTURES / "envoy-1.40.prom").read_bytes()
RANKS = """\
vllm:num_requests_running{engine="0",model_name="m"} 3
vllm:num_requests_running{engine="1",model_name="m"} 4
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:generation_tokens_total{engine="0",model_name="m"} 100
vllm:generation_tokens_total{engine="1",model_name="m"} 50
vllm:time_to_first_token_seconds_bucket{engine="0",le="1",model_name="m"} 2
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 3
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 4.5
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 3
vllm:time_to_first_token_seconds_bucket{engine="1",le="1.0",model_name="m"} 5
vllm:time_to_first_token_seconds_bucket{engine="1",le="Inf",model_name="m"} 5
vllm:time_to_first_token_seconds_sum{engine="1",model_name="m"} 1.5
vllm:time_to_first_token_seconds_count{engine="1",model_name="m"} 5
"""


def read(text: str, **options: str) -> Reading:
    return TargetReader(**options).read(text.encode())


def state(reading: Reading, name: str) -> SignalState:
    return reading.signals[name].state


def value(reading: Reading, name: str) -> float | Histogram | None:
    return reading.signals[name].value


def histogram(reading: Reading, name: str) -> Histogram:
    found = value(reading, name)
    assert isinstance(found, Histogram)
    return found


def test_ranks_become_one_row() -> None:
    reading = read(RANKS)
    rows = reading.rows[Level.ENDPOINT]
    assert rows.rows == (SELF_ROW,)
    assert rows.cell(SELF_ROW, "requests_running").known == 7
    assert rows.cell(SELF_ROW, "kv_cache_usage").known == 0.75
    assert rows.cell(SELF_ROW, "generation_tokens").known == 150
    ttft = rows.histogram(SELF_ROW, "ttft")
    assert ttft is not None
    assert (ttft.bounds.tolist(), ttft.counts.tolist(), ttft.sum) == ([1.0, math.inf], [7.0, 8.0], 6.0)
    assert len([one for one in reading.series if one["signal"] == "requests_running"]) == 2


def test_ranks_with_different_buckets_have_no_exact_sum() -> None:
    reading = read(RANKS.replace('engine="1",le="1.0"', 'engine="1",le="2.0"'))
    assert state(reading, "ttft") is SignalState.CONFLICT
    assert "different buckets" in str(reading.signals["ttft"].reason)


def test_a_sum_without_a_part_is_unknown_and_a_maximum_says_what_it_leaves_out() -> None:
    reading = read(
        RANKS.replace('_total{engine="1",model_name="m"} 50', '_total{engine="1"} NaN').replace(" 0.25", " 7")
    )
    assert state(reading, "generation_tokens") is SignalState.INVALID
    assert "1 known of 2 parts" in str(reading.signals["generation_tokens"].reason)
    assert value(reading, "kv_cache_usage") == 0.75
    assert reading.signals["kv_cache_usage"].reason == "1 known of 2 parts"


def test_an_unreadable_line_makes_its_signal_unknown_and_leaves_the_others() -> None:
    reading = read(RANKS + 'vllm:num_requests_running{engine="2,model_name="m"} 9\n')
    assert state(reading, "requests_running") is SignalState.INVALID
    assert "line 15" in str(reading.signals["requests_running"].reason)
    assert value(reading, "generation_tokens") == 150
    assert len(reading.parse_errors) == 1


def test_absent_signals_are_never_seen_then_missing() -> None:
    reader = TargetReader()
    without = b'vllm:num_requests_running{model_name="m"} 1\n'
    with_waiting = without + b'vllm:num_requests_waiting{model_name="m"} 0\n'
    assert state(reader.read(without), "requests_waiting") is SignalState.NEVER_SEEN
    assert state(reader.read(with_waiting), "requests_waiting") is SignalState.KNOWN
    later = reader.read(without)
    assert state(later, "requests_waiting") is SignalState.MISSING
    assert later.missed == ("requests_waiting",)
    assert value(later, "requests_waiting") is None


def test_declared_without_a_sample_is_missing() -> None:
    reading = read('# TYPE http_requests_total counter\nvllm:num_requests_running{model_name="m"} 1\n')
    assert state(reading, "http_2xx") is SignalState.MISSING
    assert "no sample yet" in str(reading.signals["http_2xx"].reason)


def test_values_follow_the_second_scrape() -> None:
    reader = TargetReader()
    first = reader.read(RANKS.encode())
    second = reader.read(RANKS.replace("} 3\n", "} 30\n", 1).encode())
    assert value(second, "requests_running") == 34
    assert value(first, "requests_running") == 7
    assert second.evaluator is first.evaluator


def test_columns_do_not_depend_on_the_body() -> None:
    busy, small = TargetReader().read(BUSY), read(RANKS)
    assert busy.rows[Level.ENDPOINT].columns == small.rows[Level.ENDPOINT].columns
    assert list(busy.rows[Level.ENDPOINT].histograms) == list(small.rows[Level.ENDPOINT].histograms)


@pytest.mark.parametrize(
    ("active", "expected"), [("awake", 0.0), ("weights_offloaded", 1.0), ("discard_all", 2.0), (None, None)]
)
def test_sleep_state(active: str | None, expected: float | None) -> None:
    names = ("awake", "weights_offloaded", "discard_all")
    body = "".join(
        f'vllm:engine_sleep_state{{model_name="m",sleep_state="{name}"}} {int(name == active)}\n' for name in names
    )
    reading = read(body)
    assert value(reading, "sleep_state") == expected
    assert state(reading, "sleep_state").usable is (expected is not None)


def test_kv_capacity_comes_from_labels() -> None:
    line = 'vllm:cache_config_info{{block_size="16",engine="{}",num_gpu_blocks="{}"}} 1\n'
    assert value(read(line.format(0, 100) + line.format(1, 50)), "kv_capacity_tokens") == 2400
    reading = read(line.format(0, "None"))
    assert state(reading, "kv_capacity_tokens") is SignalState.INVALID
    assert 'num_gpu_blocks="None"' in str(reading.signals["kv_capacity_tokens"].reason)


def test_the_newer_name_wins_and_a_difference_is_told() -> None:
    lines = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\nvllm:kv_cache_usage_perc{model_name="m"} 0.25\n'
    reading = read(lines)
    assert value(reading, "kv_cache_usage") == 0.25
    assert any("differ (0.25 vs 0.5)" in warning for warning in reading.warnings)


def test_counters_that_lost_their_suffix_are_still_counters() -> None:
    reading = read('ray_vllm_generation_tokens{model_name="m"} 5\nray_vllm_num_preemptions_total{model_name="m"} 2\n')
    assert (value(reading, "generation_tokens"), value(reading, "preemptions")) == (5, 2)


def test_prefix_counters_in_blocks_are_told() -> None:
    reading = read('vllm:gpu_prefix_cache_hits_total{model_name="m"} 5\n')
    assert value(reading, "prefix_hits") == 5
    assert any("counts blocks" in warning for warning in reading.warnings)


def test_a_type_that_differs_is_a_warning_only() -> None:
    reading = read('# TYPE vllm:num_requests_running counter\nvllm:num_requests_running{model_name="m"} 5\n')
    assert value(reading, "requests_running") == 5
    assert any("expected TYPE gauge, found counter" in warning for warning in reading.warnings)


def test_a_look_alike_without_model_names_is_told() -> None:
    reading = read("vllm:num_requests_running 5\n")
    assert any("look-alike" in warning for warning in reading.warnings)
    assert not read(RANKS).warnings


@pytest.mark.parametrize(
    ("change", "expected", "why"),
    [
        (('le="1",model_name="m"} 2', 'le="1",model_name="m"} 9'), SignalState.INVALID, "fall"),
        (('le="1",model_name="m"} 2', 'le="1",model_name="m"} NaN'), SignalState.INVALID, "no counts"),
        (('"} 4.5', '"} NaN'), SignalState.INVALID, "sum"),
        (('nt{engine="0",model_name="m"} 3', 'nt{engine="0",model_name="m"} 4'), SignalState.CONFLICT, "but"),
        (('le="1",model_name="m"', 'le="one",model_name="m"'), SignalState.INVALID, "not a number"),
    ],
)  # fmt: skip
def test_histograms_that_contradict_themselves(change: tuple[str, str], expected: SignalState, why: str) -> None:
    reading = read(RANKS.replace(*change, 1))
    assert state(reading, "ttft") is expected
    assert why in str(reading.signals["ttft"].reason)


def test_a_histogram_without_buckets_still_has_its_mean() -> None:
    name = "vllm:e2e_request_latency_seconds"
    e2e = histogram(read(f'{name}_sum{{model_name="m"}} 6\n{name}_count{{model_name="m"}} 3\n'), "e2e")
    assert (e2e.count, e2e.mean()) == (3, 2.0)


# --- devices


def test_devices_are_rows_with_their_labels() -> None:
    body = (
        'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",modelName="H100",hostname="n1",pod="p0"} 50\n'
        'DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",modelName="H100",Hostname="n1"} 100\n'
        'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",modelName="H100",hostname="n1",pod="p0"} 2\n'
        'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="1",UUID="GPU-b"} 5000\n'
    )
    rows = read(body).rows[Level.DEVICE]
    assert rows.rows == ("GPU-a", "GPU-b")
    assert rows.cell("GPU-a", "gpu_util").known == 0.5
    assert rows.cell("GPU-a", "fb_used").known == 2 * 1024**2
    assert rows.cell("GPU-b", "energy").known == 5.0
    assert rows.cell("GPU-b", "fb_used").state is SignalState.NEVER_SEEN
    assert rows.labels[0] == {"gpu": "0", "host": "n1", "pod": "p0", "model": "H100"}


def test_xids_of_one_device_are_parts_of_it() -> None:
    line = 'DCGM_EXP_XID_ERRORS_COUNT{{gpu="0",UUID="GPU-a",window_size_in_ms="300000",xid="{}"}} {}\n'
    assert value(read(line.format(31, 2) + line.format(79, 1)), "xid_window_count") == 2


def test_a_time_sliced_device_is_one_device_and_the_exporters_pod_is_nobody() -> None:
    reading = TargetReader().read((FIXTURES / "cases" / "C11.prom").read_bytes())
    rows = reading.rows[Level.DEVICE]
    assert sorted(rows.rows) == ["GPU-aaaa", "GPU-bbbb", "GPU-cccc/1"]
    assert value(reading, "power") == 368
    pods = {row: rows.labels[n].get("pod") for n, row in enumerate(rows.rows)}
    assert pods == {"GPU-aaaa": "llama-0,llama-1", "GPU-bbbb": "qwen-0", "GPU-cccc/1": None}
    assert rows.cell("GPU-cccc/1", "gr_engine_active").known == 0.55


def test_a_series_without_device_labels_belongs_to_the_only_device() -> None:
    one = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a"} 50\nDCGM_FI_PROF_SM_ACTIVE 0.25\n'
    assert read(one).rows[Level.DEVICE].cell("GPU-a", "sm_active").known == 0.25
    two = read(one + 'DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b"} 50\n')
    rows = two.rows[Level.DEVICE]
    assert rows.cell("GPU-a", "sm_active").state is SignalState.NEVER_SEEN
    assert rows.cell("", "sm_active").known == 0.25
    assert any("sm_active" in warning for warning in two.warnings)


# --- gateways


def test_envoy_rows() -> None:
    reading = TargetReader().read(ENVOY)
    routes, endpoints = reading.rows[Level.ROUTE], reading.rows[Level.ENDPOINT]
    assert routes.rows == ("llm",)
    found = {name: routes.cell("llm", name).known for name in routes.columns}
    assert {name: number for name, number in found.items() if number} == {
        "attempts": 9,
        "overflow": 2,
        "upstream_2xx": 8,
        "upstream_5xx": 2,
        "upstream_503": 2,
        "membership_total": 1,
        "membership_healthy": 1,
        "arrivals": 12,
        "direct_responses": 1,
        "client_disconnects": 1,
        "first_sent": 6,
        "first_503": 2,
        "retry_sent": 3,
    }
    assert found["upstream_4xx"] is None  # a code appears with its first answer
    time = routes.histogram("llm", "upstream_time")
    assert time is not None
    assert (time.count, time.bounds[0]) == (8, 0.0005)
    assert time.sum == pytest.approx(0.2594759)
    (address,) = endpoints.rows
    assert address.startswith("127.0.0.1:")
    assert endpoints.cell(address, "gateway_attempts").known == 9
    assert endpoints.cell(address, "gateway_success").known == 8
    assert endpoints.cell(address, "gateway_healthy").known == 1
    assert endpoints.labels[0] == {"cluster": "llm"}


TWO_CLUSTERS = """\
envoy_cluster_upstream_rq_total{envoy_cluster_name="llm"} 5
envoy_cluster_upstream_rq_total{envoy_cluster_name="xds"} 1
envoy_http_downstream_rq_total{envoy_http_conn_manager_prefix="ingress"} 7
envoy_http_downstream_rq_total{envoy_http_conn_manager_prefix="admin"} 99
envoy_vhost_vcluster_upstream_rq_total{envoy_virtual_cluster="first",envoy_virtual_host="llm"} 4
"""


def test_listener_signals_go_to_the_route_they_are_said_to_belong_to() -> None:
    without = read(TWO_CLUSTERS).rows[Level.ROUTE]
    assert without.cell("llm", "arrivals").state is SignalState.NEVER_SEEN
    assert without.cell("listener:ingress", "arrivals").known == 7
    assert without.cell("llm", "first_sent").known == 4
    told = read(TWO_CLUSTERS, route="llm").rows[Level.ROUTE]
    assert told.cell("llm", "arrivals").known == 7
    assert set(told.rows) == {"llm", "xds"}


# --- what is no reading


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"<html></html>", "found an HTML"),
        (b"", "found an empty body"),
        (b"go_goroutines 5\n", "found none of their names"),
        (b'vllm:num_requests_running{model_name="m"} 1', "cut off"),
    ],
)
def test_a_body_that_must_not_be_used(body: bytes, found: str) -> None:
    reading = TargetReader().read(body)
    assert found in str(reading.error)
    assert reading.rows == {}
    assert reading.signals == {}


def test_another_product_than_configured_is_an_error() -> None:
    assert "expected metrics of envoy, found those of vllm" in str(TargetReader("envoy").read(BUSY).error)
    assert TargetReader("vllm").read(BUSY).error is None


def test_a_target_that_changes_its_product_is_told_and_starts_anew() -> None:
    reader = TargetReader()
    reader.read(BUSY)
    changed = reader.read(ENVOY)
    assert changed.product == "envoy"
    assert any("was vllm and is envoy" in warning for warning in changed.warnings)
    assert changed.missed == ()
    assert not reader.read(ENVOY).warnings


def test_a_bad_body_between_two_good_ones_changes_nothing() -> None:
    reader = TargetReader()
    first = reader.read(BUSY)
    assert reader.read(BUSY[:20000]).error is not None
    again = reader.read(BUSY)
    assert again.missed == ()
    assert np.array_equal(
        again.rows[Level.ENDPOINT].value, first.rows[Level.ENDPOINT].value, equal_nan=True
    )  # fmt: skip


def test_the_document_is_json() -> None:
    document = reading_document("file", TargetReader().read(BUSY))
    text = json.dumps(document, allow_nan=False)
    assert list(document)[:2] == ["target", "engine"]
    signals = json.loads(text)["signals"]
    assert signals["requests_running"] == {"value": 4.0, "state": "known", "reason": None, "unit": "requests"}
    assert signals["ttft"]["value"]["count"] == signals["ttft"]["value"]["buckets"]["+Inf"]
    assert signals["spec_draft_tokens"]["state"] == "unknown(never_seen)"
    assert signals["spec_draft_tokens"]["value"] is None


def test_a_document_of_an_unusable_body_tells_why() -> None:
    document = reading_document("url", TargetReader().read(b"<html>"))
    assert document["signals"] == {}
    assert "HTML" in str(document["parse_errors"])
    json.dumps(document, allow_nan=False)
