"""Row: does the load feed itself, and what holds it back."""

from __future__ import annotations

from dashboards.panels import Query, Row, timeseries
from dashboards.selectors import CLUSTER, LISTENER, POOL, rate

ROW = Row(
    "Retry storm",
    200,
    (
        timeseries(
            "Amplification",
            "Attempts per first attempt (`inferostat_pool_amplification`). 1 is no retries; it rises "
            "before goodput falls.",
            Query(f"max by (pool) (inferostat_pool_amplification{{{POOL}}})", "{{pool}}"),
            unit="none",
            minimum=1,
        ),
        timeseries(
            "Vulnerability",
            "Offered rate x most attempts a client may make / capacity "
            "(`inferostat_pool_vulnerability`). Above 1 a large "
            "enough trigger can tip the pool into a collapse that outlives it. A distance, not an alarm.",
            Query(f"max by (pool) (inferostat_pool_vulnerability{{{POOL}}})", "{{pool}}"),
            unit="none",
            limit=1,
        ),
        timeseries(
            "Expected queue wait",
            "How long a request that arrives now will wait in the engines' queues "
            "(`inferostat_pool_queue_wait_seconds`). Beyond the clients' patience all work is wasted.",
            Query(f"max by (pool) (inferostat_pool_queue_wait_seconds{{{POOL}}})", "{{pool}}"),
            unit="s",
        ),
        timeseries(
            "First attempts and retries sent to engines",
            "Sent upstream by the gateway, told apart by the clients' retry-count header "
            "(`envoy_vhost_vcluster_upstream_rq_total`).",
            Query(
                rate(
                    "envoy_vhost_vcluster_upstream_rq_total",
                    'envoy_virtual_host=~"$cluster",envoy_virtual_cluster=~"first|retry"',
                    "envoy_virtual_cluster",
                ),
                "{{envoy_virtual_cluster}}",
            ),
            unit="reqps",
            stack=True,
        ),
        timeseries(
            "Turned away and given up",
            "Refused at the door (admission, retry budget), refused by the circuit breaker, and clients "
            "that closed "
            "before their answer.",
            Query(rate("envoy_http_rq_direct_response", LISTENER), "at the door"),
            Query(rate("envoy_cluster_upstream_rq_active_overflow", CLUSTER), "circuit breaker"),
            Query(rate("envoy_http_downstream_rq_rx_reset", LISTENER), "client gave up"),
            unit="reqps",
        ),
        timeseries(
            "Limits in force",
            "How many limits the agent has read back from the gateway, by lever. 0 is the healthy state.",
            *(
                Query(
                    f'count(inferostat_lever_value{{lever="{lever}"}}) or 0 * max(inferostat_paused)',
                    lever.replace("_", " "),
                )
                for lever in ("admission", "retry_budget", "breaker")
            ),
            unit="none",
        ),
    ),
)
