"""Envoy's bootstrap for the embedded fleet, as a JSON document.

The levers it offers are runtime keys with these defaults: `inferostat.<cluster>.shed_percent` and
`inferostat.<cluster>.shed_retries_percent` (0: admit all),
`circuit_breakers.<cluster>.default.max_requests` (a million: Envoy's own default of 1024 would act as a
hidden limit), `...retry_budget.budget_percent` (20). `healthy_panic_threshold` is 0 on purpose: an endpoint
taken out stays out however many are out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

UNLIMITED = 1_000_000
RETRY_HEADER = "x-stainless-retry-count"
SHED_RETRY_AFTER_S = 5
_IS_RETRY = {"name": RETRY_HEADER, "range_match": {"start": 1, "end": 1000}}


def _type(name: str) -> str:
    return f"type.googleapis.com/envoy.{name}"


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _header(name: str, value: str) -> dict[str, Any]:
    return {"header": {"key": name, "value": value}}


def _shed_route(
    name: str, runtime_key: str, only: list[dict[str, Any]], headers: list[dict[str, Any]]
) -> dict[str, Any]:
    fraction = {"default_value": {"numerator": 0, "denominator": "HUNDRED"}, "runtime_key": runtime_key}
    match: dict[str, Any] = {"prefix": "/", "runtime_fraction": fraction}
    if only:
        match["headers"] = only
    body = '{"error":{"message":"overloaded, try again later","type":"overloaded","code":429}}'
    return {
        "match": match,
        "direct_response": {"status": 429, "body": {"inline_string": body}},
        "stat_prefix": name,
        "response_headers_to_add": [_header("retry-after", str(SHED_RETRY_AFTER_S)), *headers],
    }


def _routes(cluster: str) -> list[dict[str, Any]]:
    serve = {
        "match": {"prefix": "/"},
        "stat_prefix": "serve",
        "route": {
            "cluster": cluster,
            "timeout": "0s",
            "retry_policy": {"retry_on": "connect-failure,refused-stream", "num_retries": 1},
        },
    }
    return [
        _shed_route(
            "shed_retry",
            f"inferostat.{cluster}.shed_retries_percent",
            [_IS_RETRY],
            [_header("x-should-retry", "false")],
        ),
        _shed_route("shed_all", f"inferostat.{cluster}.shed_percent", [], []),
        serve,
    ]


def bootstrap(cluster: str, eds_path: Path, listen_port: int, admin_port: int) -> dict[str, Any]:
    """The whole configuration; port 0 lets Envoy choose."""
    virtual_host = {
        "name": cluster,
        "domains": ["*"],
        "virtual_clusters": [
            {"name": "retry", "headers": [_IS_RETRY]},
            {"name": "first", "headers": [{"name": ":path", "present_match": True}]},
        ],
        "routes": _routes(cluster),
    }
    manager = {
        "@type": _type("extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "ingress",
        "codec_type": "AUTO",
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": _type("extensions.filters.http.router.v3.Router")},
            }
        ],
        "route_config": {"name": "ingress", "virtual_hosts": [virtual_host]},
    }
    listener = {
        "name": "ingress",
        "address": _address(listen_port),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    thresholds = {
        "priority": "DEFAULT",
        "max_connections": UNLIMITED,
        "max_pending_requests": UNLIMITED,
        "max_requests": UNLIMITED,
        "max_retries": UNLIMITED,
        "retry_budget": {"budget_percent": {"value": 20}, "min_retry_concurrency": 3},
    }
    upstream = {
        "name": cluster,
        "type": "EDS",
        "connect_timeout": "1s",
        "lb_policy": "LEAST_REQUEST",
        "track_cluster_stats": {"per_endpoint_stats": True},
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "circuit_breakers": {"thresholds": [thresholds]},
        "eds_cluster_config": {
            "eds_config": {"resource_api_version": "V3", "path_config_source": {"path": str(eds_path)}}
        },
    }
    return {
        "node": {"id": "inferostat-fleet", "cluster": "fleet"},
        "admin": {"address": _address(admin_port)},
        "layered_runtime": {"layers": [{"name": "base", "static_layer": {}}, {"name": "admin", "admin_layer": {}}]},
        "static_resources": {"listeners": [listener], "clusters": [upstream]},
    }
