"""What the signals of a body are, computed without our reader: prometheus_client's parser and plain sums.

The yardstick of `collector.reading`; nothing of the collector is imported. Histograms are (count, sum,
{bound: cumulative count}); a signal that the body does not give is absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

Table = dict[str, "float | ExpectedHistogram"]
_BLANKS = {*range(2147483632, 2147483636), 2.0**63, *(2.0**47 + n for n in range(4))}


@dataclass(frozen=True)
class ExpectedHistogram:
    count: float
    sum: float
    buckets: Mapping[float, float]


@dataclass(frozen=True)
class _Row:
    name: str
    labels: Mapping[str, str]
    value: float


def expected_signals(body: bytes, product: str) -> Table:
    """Canonical signals of one body of a product (vllm, dcgm, envoy)."""
    lines = body.decode("utf-8").replace("\r\n", "\n").split("\n")
    # without types the parser leaves names as they stand (it adds `_total` to counters that lack it)
    text = "\n".join(line for line in lines if not line.startswith("# TYPE"))
    rows = [
        _Row(sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    return {"vllm": _vllm, "dcgm": _dcgm, "envoy": _envoy}[product](rows)


def _of(rows: Iterable[_Row], name: str, **labels: str) -> list[_Row]:
    """Distinct series of a name; a label pattern that ends in * matches a beginning."""
    found: dict[tuple[tuple[str, str], ...], _Row] = {}
    for row in rows:
        if row.name == name and all(_like(row.labels.get(key, ""), text) for key, text in labels.items()):
            found[tuple(sorted(row.labels.items()))] = row
    return list(found.values())


def _like(value: str, pattern: str) -> bool:
    return value.startswith(pattern[:-1]) if pattern.endswith("*") else value == pattern


def _put(table: Table, signal: str, rows: list[_Row], how: Callable[[list[float]], float] = sum) -> None:
    if rows and signal not in table:
        table[signal] = how([row.value for row in rows])


def _put_histogram(table: Table, signal: str, rows: list[_Row], name: str, scale: float = 1.0) -> None:
    counts = _of(rows, name + "_count")
    if not counts or signal in table:
        return
    buckets: dict[float, float] = {}
    for row in _of(rows, name + "_bucket"):
        bound = float(row.labels["le"]) * scale
        buckets[bound] = buckets.get(bound, 0.0) + row.value
    buckets.setdefault(math.inf, sum(row.value for row in counts))
    total = sum(row.value for row in _of(rows, name + "_sum")) * scale
    if buckets[math.inf] != sum(row.value for row in counts):
        return  # contradicts itself
    table[signal] = ExpectedHistogram(sum(row.value for row in counts), total, buckets)


_VLLM_SUMS = {
    "requests_running": ("num_requests_running",),
    "requests_waiting": ("num_requests_waiting",),
    "prompt_tokens": ("prompt_tokens_total",),
    "generation_tokens": ("generation_tokens_total",),
    "cached_prompt_tokens": ("prompt_tokens_cached_total",),
    "prefix_hits": ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
    "prefix_queries": ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
    "preemptions": ("num_preemptions_total",),
    "admission_rejections": ("admission_rejections_total",),
    "corrupted_requests": ("corrupted_requests_total",),
    "spec_draft_tokens": ("spec_decode_num_draft_tokens_total",),
    "spec_accepted_tokens": ("spec_decode_num_accepted_tokens_total",),
}
_VLLM_HISTOGRAMS = {
    "ttft": ("time_to_first_token_seconds",),
    "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "tpot": ("request_time_per_output_token_seconds",),
    "e2e": ("e2e_request_latency_seconds",),
    "queue_time": ("request_queue_time_seconds",),
    "prefill_time": ("request_prefill_time_seconds",),
    "decode_time": ("request_decode_time_seconds",),
    "inference_time": ("request_inference_time_seconds",),
    "request_prompt_tokens": ("request_prompt_tokens",),
    "request_generation_tokens": ("request_generation_tokens",),
    "batch_tokens": ("iteration_tokens_total",),
}


def _vllm(rows: list[_Row]) -> Table:
    plain = [_Row(row.name.removeprefix("ray_").replace("vllm:", "vllm_"), row.labels, row.value) for row in rows]
    table: Table = {}
    for signal, names in _VLLM_SUMS.items():
        for name in names:
            _put(table, signal, _of(plain, "vllm_" + name))
    for name in ("kv_cache_usage_perc", "gpu_cache_usage_perc"):
        _put(table, "kv_cache_usage", _of(plain, "vllm_" + name), max)
    _put(table, "process_start_time", _of(plain, "process_start_time_seconds"), max)
    for reason in ("stop", "length", "abort", "error", "repetition"):
        finished = _of(plain, "vllm_request_success_total", finished_reason=reason)
        _put(table, f"requests_by_finish_reason.{reason}", finished)
    for hundred in "245":
        _put(table, f"http_{hundred}xx", _of(plain, "http_requests_total", status=hundred + "*"))
    sizes = [(r.labels["block_size"], r.labels["num_gpu_blocks"]) for r in _of(plain, "vllm_cache_config_info")]
    if sizes and all(blocks.isdigit() for _, blocks in sizes):
        table["kv_capacity_tokens"] = float(sum(int(size) * int(blocks) for size, blocks in sizes))
    levels = {"awake": 0.0, "weights_offloaded": 1.0, "discard_all": 2.0}
    states = [levels[r.labels["sleep_state"]] for r in _of(plain, "vllm_engine_sleep_state") if r.value == 1]
    if states:
        table["sleep_state"] = max(states)
    for signal, names in _VLLM_HISTOGRAMS.items():
        for name in names:
            _put_histogram(table, signal, plain, "vllm_" + name)
    return table


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


# signal -> (field, factor, greatest valid raw value, how devices become one)
_DCGM: dict[str, tuple[str, float, float, Callable[[list[float]], float]]] = {
    "gpu_util": ("DEV_GPU_UTIL", 0.01, 100, _mean),
    "mem_copy_util": ("DEV_MEM_COPY_UTIL", 0.01, 100, _mean),
    "gr_engine_active": ("PROF_GR_ENGINE_ACTIVE", 1, 1.5, _mean),
    "sm_active": ("PROF_SM_ACTIVE", 1, 1.5, _mean),
    "tensor_active": ("PROF_PIPE_TENSOR_ACTIVE", 1, 1.5, _mean),
    "dram_active": ("PROF_DRAM_ACTIVE", 1, 1.5, _mean),
    "fb_used": ("DEV_FB_USED", 1 << 20, math.inf, sum),
    "fb_free": ("DEV_FB_FREE", 1 << 20, math.inf, sum),
    "power": ("DEV_POWER_USAGE", 1, 5000, sum),
    "temperature": ("DEV_GPU_TEMP", 1, 150, max),
    "memory_temperature": ("DEV_MEMORY_TEMP", 1, 150, max),
    "sm_clock": ("DEV_SM_CLOCK", 1, math.inf, min),
    "mem_clock": ("DEV_MEM_CLOCK", 1, math.inf, min),
    "xid": ("DEV_XID_ERRORS", 1, math.inf, max),
    "remapped_rows": ("DEV_UNCORRECTABLE_REMAPPED_ROWS", 1, math.inf, sum),
    "ecc_double_bit": ("DEV_ECC_DBE_VOL_TOTAL", 1, math.inf, sum),
    "ecc_single_bit": ("DEV_ECC_SBE_VOL_TOTAL", 1, math.inf, sum),
    "energy": ("DEV_TOTAL_ENERGY_CONSUMPTION", 0.001, math.inf, sum),
    "pcie_tx": ("PROF_PCIE_TX_BYTES", 1, math.inf, sum),
    "pcie_rx": ("PROF_PCIE_RX_BYTES", 1, math.inf, sum),
    "pcie_replays": ("DEV_PCIE_REPLAY_COUNTER", 1, math.inf, sum),
    "throttle_reasons": ("DEV_CLOCK_THROTTLE_REASONS", 1, math.inf, max),
}


def _dcgm(rows: list[_Row]) -> Table:
    table: Table = {}
    for signal, (name, factor, greatest, how) in _DCGM.items():
        by_device: dict[tuple[str, str], float] = {}
        for row in _of(rows, "DCGM_FI_" + name):
            if row.value not in _BLANKS and row.value <= greatest:
                device = row.labels.get("UUID") or row.labels.get("gpu", "the only one")
                by_device[device, row.labels.get("GPU_I_ID", "")] = row.value * factor
        if by_device:
            table[signal] = how(list(by_device.values()))
    return table


_ENVOY_CLUSTER = {
    "attempts": "upstream_rq_total",
    "active": "upstream_rq_active",
    "pending": "upstream_rq_pending_active",
    "retries": "upstream_rq_retry",
    "retry_overflow": "upstream_rq_retry_overflow",
    "retry_limit_exceeded": "upstream_rq_retry_limit_exceeded",
    "timeouts": "upstream_rq_timeout",
    "cancelled": "upstream_rq_cancelled",
    "resets_sent": "upstream_rq_tx_reset",
    "resets_received": "upstream_rq_rx_reset",
    "connect_failures": "upstream_cx_connect_fail",
    "none_healthy": "upstream_cx_none_healthy",
    "connection_overflow": "upstream_cx_overflow",
    "ejections_active": "outlier_detection_ejections_active",
    "ejections": "outlier_detection_ejections_enforced_total",
    "membership_total": "membership_total",
    "membership_healthy": "membership_healthy",
    "gateway_attempts": "endpoint_rq_total",
    "gateway_active": "endpoint_rq_active",
    "gateway_success": "endpoint_rq_success",
    "gateway_errors": "endpoint_rq_error",
    "gateway_timeouts": "endpoint_rq_timeout",
    "gateway_connect_failures": "endpoint_cx_connect_fail",
}
_ENVOY_LISTENER = {
    "arrivals": "downstream_rq_total",
    "direct_responses": "rq_direct_response",
    "client_disconnects": "downstream_rq_rx_reset",
}


def _envoy(rows: list[_Row]) -> Table:
    table: Table = {}
    for signal, name in _ENVOY_CLUSTER.items():
        _put(table, signal, _of(rows, "envoy_cluster_" + name))
    refused = [
        *_of(rows, "envoy_cluster_upstream_rq_active_overflow"),
        *_of(rows, "envoy_cluster_upstream_rq_pending_overflow"),
    ]
    _put(table, "overflow", refused)
    for hundred in "245":
        answers = _of(rows, "envoy_cluster_upstream_rq_xx", envoy_response_code_class=hundred)
        _put(table, f"upstream_{hundred}xx", answers)
    for code in ("429", "503"):
        answers = _of(rows, "envoy_cluster_upstream_rq", envoy_response_code=code)
        _put(table, f"upstream_{code}", answers)
    for signal, name in (("circuit_open", "rq_open"), ("circuit_retry_open", "rq_retry_open")):
        _put(table, signal, _of(rows, f"envoy_cluster_circuit_breakers_default_{name}"), max)
    _put(table, "gateway_healthy", _of(rows, "envoy_cluster_endpoint_healthy"), min)
    for signal, name in _ENVOY_LISTENER.items():
        listeners = _of(rows, "envoy_http_" + name)
        own = ("admin", "async-client")
        served = [row for row in listeners if row.labels["envoy_http_conn_manager_prefix"] not in own]
        _put(table, signal, served)
    for which in ("first", "retry"):
        sent = _of(rows, "envoy_vhost_vcluster_upstream_rq_total", envoy_virtual_cluster=which)
        _put(table, f"{which}_sent", sent)
        name = "envoy_vhost_vcluster_upstream_rq"
        _put(table, f"{which}_503", _of(rows, name, envoy_virtual_cluster=which, envoy_response_code="503"))
    _put_histogram(table, "upstream_time", rows, "envoy_cluster_upstream_rq_time", 0.001)
    return table
