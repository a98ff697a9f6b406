import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fleetsim.engine import Engine, Sequence
from fleetsim.timing import load_profile
from fleetsim.vllm_metrics import EngineMetrics

LIVE = Path(__file__).parents[1] / "fixtures" / "live" / "vllm-0.32-busy.prom"
LABELS = {"engine": "0", "model_name": "m"}


def parse(body: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (s.name, frozenset(s.labels.items())): s.value
        for family in text_string_to_metric_families(body)
        for s in family.samples
    }


def served(requests: list[Sequence]) -> tuple[Engine, EngineMetrics]:
    engine, metrics = Engine(load_profile()), EngineMetrics(load_profile(), "m", 1000.0)
    for request in requests:
        engine.submit(request)
    now = 0.0
    while (result := engine.step(now)) is not None:
        now = result.end
        metrics.observe(engine, result)
    return engine, metrics


def value(metrics: EngineMetrics, name: str, **labels: str) -> float:
    return parse(metrics.render())[name, frozenset({**LABELS, **labels}.items())]


def test_counts_tokens_requests_and_times() -> None:
    _, metrics = served([Sequence(i, 100, 10, 0.0) for i in range(3)])
    assert value(metrics, "vllm:prompt_tokens_total") == 300
    assert value(metrics, "vllm:generation_tokens_total") == 30
    assert value(metrics, "vllm:request_success_total", finished_reason="length") == 3
    assert value(metrics, "vllm:time_to_first_token_seconds_count") == 3
    assert value(metrics, "vllm:inter_token_latency_seconds_count") == 27
    assert value(metrics, "vllm:request_time_per_output_token_seconds_count") == 3
    assert value(metrics, "vllm:iteration_tokens_total_sum") == 300 + 27
    whole = value(metrics, "vllm:e2e_request_latency_seconds_sum")
    parts = ("queue", "prefill", "decode")
    assert whole == pytest.approx(sum(value(metrics, f"vllm:request_{p}_time_seconds_sum") for p in parts))
    assert value(metrics, "vllm:request_generation_tokens_bucket", le="10.0") == 3
    assert value(metrics, "vllm:request_generation_tokens_bucket", le="5.0") == 0


def test_fresh_body_has_every_series_at_zero() -> None:
    metrics = EngineMetrics(load_profile(), "m", 1000.0)
    for reason in ("stop", "length", "abort", "error", "repetition"):
        assert value(metrics, "vllm:request_success_total", finished_reason=reason) == 0
    assert value(metrics, "vllm:num_requests_waiting") == 0
    assert parse(metrics.render())["process_start_time_seconds", frozenset()] == 1000.0


def test_aborted_request_leaves_tokens_and_ttft_but_no_request_sample() -> None:
    engine, metrics = Engine(load_profile()), EngineMetrics(load_profile(), "m", 1000.0)
    request = Sequence(0, 100, 10, 0.0)
    engine.submit(request)
    for _ in range(3):
        result = engine.step(0.0)
        assert result is not None
        metrics.observe(engine, result)
    engine.abort(request)
    metrics.observe_gauges(engine)
    assert value(metrics, "vllm:generation_tokens_total") == 3
    assert value(metrics, "vllm:time_to_first_token_seconds_count") == 1
    assert value(metrics, "vllm:e2e_request_latency_seconds_count") == 0
    assert value(metrics, "vllm:request_success_total", finished_reason="abort") == 0
    assert value(metrics, "vllm:num_requests_running") == 0


def test_gauges_move_only_with_a_step() -> None:
    engine, metrics = Engine(load_profile()), EngineMetrics(load_profile(), "m", 1000.0)
    engine.submit(Sequence(0, 100, 10, 0.0))
    assert value(metrics, "vllm:num_requests_waiting") == 0
    result = engine.step(0.0)
    assert result is not None
    metrics.observe(engine, result)
    assert value(metrics, "vllm:num_requests_running") == 1
    assert 0 < value(metrics, "vllm:kv_cache_usage_perc") < 0.01


def test_every_family_is_one_of_the_real_servers_with_its_type_labels_and_buckets() -> None:
    def shapes(body: str) -> dict[str, tuple[str, set[str], set[str]]]:
        return {
            family.name: (
                family.type,
                {label for s in family.samples for label in s.labels},
                {s.labels["le"] for s in family.samples if "le" in s.labels},
            )
            for family in text_string_to_metric_families(body)
        }

    _, metrics = served([Sequence(0, 100, 10, 0.0)])
    metrics.observe_http("/v1/completions", 200)
    ours, real = shapes(metrics.render()), shapes(LIVE.read_text())
    # These depend on the server's configuration: its model length, its cache.
    configured = re.compile(r"vllm:(request_.*_tokens|request_params_max_tokens|cache_config_info)$")
    for name, shape in ours.items():
        assert name in real
        if configured.match(name):
            assert shape[0] == real[name][0]
        else:
            assert shape == real[name]


def test_prompt_tokens_are_told_apart_by_where_their_kv_came_from() -> None:
    handed = Sequence(2, 300, 5, 0.0, received=300)
    handed.generated = 1
    engine, metrics = served([Sequence(0, 100, 5, 0.0, ((1, 96),))])
    for request in (Sequence(1, 100, 5, 0.0, ((1, 96),)), handed):
        engine.submit(request)
    while (result := engine.step(1.0)) is not None:
        metrics.observe(engine, result)
    by_source = {
        source: value(metrics, "vllm:prompt_tokens_by_source_total", source=source)
        for source in ("local_compute", "local_cache_hit", "external_kv_transfer")
    }
    assert by_source == {"local_compute": 100 + 4, "local_cache_hit": 96, "external_kv_transfer": 300}
    assert value(metrics, "vllm:prompt_tokens_total") == 500
    assert value(metrics, "vllm:prompt_tokens_cached_total") == 396
    assert value(metrics, "vllm:prefix_cache_queries_total") == 500
    assert value(metrics, "vllm:prefix_cache_hits_total") == 96
    assert value(metrics, "vllm:generation_tokens_total") == 5 + 5 + 4  # one was made elsewhere


def test_run_of_decode_steps_counts_as_each_of_them() -> None:
    together, singly = (EngineMetrics(load_profile(), "m", 1000.0) for _ in range(2))
    together.observe_decodes(50, 12, 0.0234, 0.0001)
    for step in range(50):
        singly.observe_step(12, 0.0234 + 0.0001 * step, 12)
    assert parse(together.render()) == pytest.approx(parse(singly.render()))


def test_whoever_reads_may_have_the_values_brought_up_to_date() -> None:
    metrics = EngineMetrics(load_profile(), "m", 1000.0)
    metrics.refresh = lambda: metrics.set_gauges(3, 2, 0.5, 1)
    assert value(metrics, "vllm:num_requests_running") == 3
