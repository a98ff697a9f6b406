"""Row: the gateway's own account (Envoy)."""

from __future__ import annotations

from dashboards.panels import Query, Row, timeseries
from dashboards.selectors import CLUSTER, LISTENER, WINDOW, rate

SERVER_ERROR = 'envoy_response_code_class="5"'

ROW = Row(
    "Gateway",
    500,
    (
        timeseries(
            "Requests by answer",
            "Requests per second at the listener, by class of the answer (`envoy_http_downstream_rq_xx`). "
            "A 2xx is only a header: a stream may still fail.",
            Query(
                rate("envoy_http_downstream_rq_xx", LISTENER, "envoy_response_code_class"),
                "{{envoy_response_code_class}}xx",
            ),
            unit="reqps",
            stack=True,
        ),
        timeseries(
            "Share of 5xx",
            "Answers 5xx over all requests at the listener, the gateway's own refusals included.",
            Query(
                f"sum(rate(envoy_http_downstream_rq_xx{{{LISTENER},{SERVER_ERROR}}}[{WINDOW}])) "
                f"/ (sum(rate(envoy_http_downstream_rq_total{{{LISTENER}}}[{WINDOW}])) > 0)",
                "5xx",
            ),
            unit="percentunit",
            no_value="no traffic",
        ),
        timeseries(
            "Requests in flight",
            "Open upstream requests, and those waiting for a connection.",
            Query(
                f"sum by (envoy_cluster_name) (envoy_cluster_upstream_rq_active{{{CLUSTER}}})",
                "active {{envoy_cluster_name}}",
            ),
            Query(
                f"sum by (envoy_cluster_name) (envoy_cluster_upstream_rq_pending_active{{{CLUSTER}}})",
                "pending {{envoy_cluster_name}}",
            ),
            unit="none",
        ),
        timeseries(
            "Overflow",
            "Requests refused by the request breaker, by the pending breaker, and retries refused by the retry budget.",
            Query(rate("envoy_cluster_upstream_rq_active_overflow", CLUSTER), "requests"),
            Query(rate("envoy_cluster_upstream_rq_pending_overflow", CLUSTER), "pending"),
            Query(rate("envoy_cluster_upstream_rq_retry_overflow", CLUSTER), "retries"),
            unit="reqps",
        ),
        timeseries(
            "The gateway's own retries",
            "Retries the gateway makes itself, and those that ran out. Clients' retries are in the storm row.",
            Query(rate("envoy_cluster_upstream_rq_retry", CLUSTER), "retries"),
            Query(rate("envoy_cluster_upstream_rq_retry_limit_exceeded", CLUSTER), "ran out"),
            unit="reqps",
        ),
        timeseries(
            "In flight by endpoint",
            "Open requests of each endpoint; needs per-endpoint statistics. A replica far above its "
            "peers is slow or favoured.",
            Query(
                f"sum by (envoy_endpoint_address) (envoy_cluster_endpoint_rq_active{{{CLUSTER}}})",
                "{{envoy_endpoint_address}}",
            ),
            unit="none",
        ),
        timeseries(
            "Endpoints",
            "Endpoints the gateway knows and those it holds healthy.",
            Query(f"sum(envoy_cluster_membership_total{{{CLUSTER}}})", "known"),
            Query(f"sum(envoy_cluster_membership_healthy{{{CLUSTER}}})", "healthy"),
            unit="none",
        ),
        timeseries(
            "Breaker open",
            "1 while the request breaker or the retry breaker refuses.",
            Query(f"max(envoy_cluster_circuit_breakers_default_rq_open{{{CLUSTER}}})", "requests"),
            Query(f"max(envoy_cluster_circuit_breakers_default_rq_retry_open{{{CLUSTER}}})", "retries"),
            unit="none",
        ),
        timeseries(
            "Connections that failed",
            "Connections the gateway could not open, and requests for which no endpoint was healthy.",
            Query(rate("envoy_cluster_upstream_cx_connect_fail", CLUSTER), "connect failed"),
            Query(rate("envoy_cluster_upstream_cx_none_healthy", CLUSTER), "none healthy"),
            unit="ops",
        ),
    ),
)
