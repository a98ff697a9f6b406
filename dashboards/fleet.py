"""The fleet dashboard: variables, annotations, and the rows in the order in which an incident is read."""

from __future__ import annotations

from dashboards import agent, engines, gateway, golden, gpu, storm
from dashboards.layout import dashboard, query_variable
from dashboards.panels import DATASOURCE, Json

ROWS = [golden.ROW, storm.ROW, engines.ROW, gpu.ROW, gateway.ROW, agent.ROW]


def _annotation(name: str, expr: str, title: str, color: str) -> Json:
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "expr": expr,
        "step": "10s",
        "titleFormat": title,
        "useValueForTime": False,
    }


VARIABLES: list[Json] = [
    {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1},
    query_variable("job", "Job", "llm:requests_running", "job"),
    query_variable("model_name", "Model", 'llm:requests_running{job=~"$job"}', "model_name"),
    query_variable("instance", "Engine", 'llm:requests_running{job=~"$job",model_name=~"$model_name"}', "instance"),
    query_variable("pool", "Pool (agent)", "inferostat_pool_attempts_rate", "pool"),
    query_variable("gpu", "GPU", "DCGM_FI_DEV_SM_CLOCK", "UUID"),
    query_variable("cluster", "Gateway cluster", "envoy_cluster_upstream_rq_total", "envoy_cluster_name"),
    {
        # "All" must mean the listed ones: the admin listener is left out by the regex
        **query_variable(
            "listener",
            "Gateway listener",
            "envoy_http_downstream_rq_total",
            "envoy_http_conn_manager_prefix",
            regex="/^(?!admin$|async-client$).*$/",
        ),
        "allValue": None,
    },
    {
        # values must be bounds of the histogram's buckets
        "name": "ttft_slo",
        "label": "TTFT objective (s)",
        "type": "custom",
        "query": "2.5,1.0,5.0,10.0",
        "multi": False,
        "includeAll": False,
    },
]

ANNOTATIONS: list[Json] = [
    _annotation(
        "Agent actions",
        'sum by (lever) (increase(inferostat_actions_total{status="applied"}[$__rate_interval])) > 0',
        "action: {{lever}}",
        "purple",
    ),
    _annotation(
        "Retry storm",
        'max by (slug, scope) (inferostat_finding_active{slug=~"retry-storm.*"})',
        "{{slug}} {{scope}}",
        "red",
    ),
    _annotation(
        "Alerts",
        'ALERTS{alertstate="firing",severity=~"critical|warning"}',
        "{{alertname}} {{instance}}",
        "orange",
    ),
]


def build() -> Json:
    return dashboard(
        uid="inferostat-fleet",
        title="LLM fleet",
        description="A fleet from the users' side down to the devices. Needs the recording rules beside it.",
        variables=VARIABLES,
        annotations=ANNOTATIONS,
        rows=ROWS,
    )
