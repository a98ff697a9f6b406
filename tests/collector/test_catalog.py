"""The catalog: complete, consistent, and careful about whose names it claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.catalog import PRODUCTS, canonical_key, product, recognise, signals, wanted_keys
from collector.catalog.document import document
from collector.model import Kind, Level


def test_every_signal_is_given_by_some_product() -> None:
    given = {name for known in PRODUCTS for name in product(known).signals}
    assert given == set(signals())


def test_levels_and_kinds_hold_together() -> None:
    for known in map(product, PRODUCTS):
        for signal in known.signals.values():
            assert signal.level in known.rows, f"{known.name}: {signal.name}"
            assert signal.families, signal.name
            assert signal.low < signal.high
            if signal.levels is not None or signal.product_of:
                assert signal.entry.signal.kind is Kind.GAUGE


def test_no_family_feeds_two_signals_under_the_same_conditions() -> None:
    for known in map(product, PRODUCTS):
        told = [(f.key, str(s.where)) for s in known.signals.values() for f in s.families]
        assert len(told) == len(set(told))


@pytest.mark.parametrize(
    "name", ["vllm:num_requests_running", "vllm_num_requests_running", "ray_vllm:num_requests_running"]
)
def test_spellings_of_one_name(name: str) -> None:
    assert canonical_key(name) == "vllm_num_requests_running"
    assert canonical_key(name) in wanted_keys()
    assert recognise(frozenset({canonical_key(name)})) == "vllm"


def test_names_without_the_product_are_not_claimed() -> None:
    nim = {
        "num_requests_running",
        "gpu_cache_usage_perc",
        "process_start_time_seconds",
        "http_requests_total",
    }
    assert recognise(frozenset(nim)) is None
    assert recognise(frozenset()) is None


def test_a_router_that_repeats_engine_names_is_no_engine() -> None:
    router = {"vllm_num_requests_running", "vllm_num_requests_waiting", "vllm_num_incoming_requests_total"}
    assert recognise(frozenset(router)) is None


def test_the_product_with_most_of_its_own_names_wins() -> None:
    keys = {
        "vllm_num_requests_running",
        "envoy_cluster_upstream_rq_total",
        "envoy_cluster_upstream_rq_active",
    }
    assert recognise(frozenset(keys)) == "envoy"


def test_an_unknown_product_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a product out of vllm, dcgm, envoy, found 'tgi'"):
        product("tgi")


def test_where_takes_prefixes_and_exact_values() -> None:
    http = product("vllm").signals["http_5xx"]
    assert http.matches({"status": "5xx"})
    assert http.matches({"status": "503"})
    assert not http.matches({"status": "2xx"})
    assert not http.matches({})
    arrivals = product("envoy").signals["arrivals"]
    assert arrivals.level is Level.ROUTE
    assert not arrivals.matches({"envoy_http_conn_manager_prefix": "admin"})
    assert arrivals.matches({"envoy_http_conn_manager_prefix": "administrators"})


def test_the_page_of_signals_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "signals.md"
    assert page.read_text() == document(), "run python -m collector.catalog.document > docs/signals.md"
