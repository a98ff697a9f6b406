"""Label matchers of the dashboard's variables, and the PromQL forms that more than one row uses."""

from __future__ import annotations

ENGINE = 'job=~"$job",model_name=~"$model_name",instance=~"$instance"'
GPU = 'UUID=~"$gpu"'
CLUSTER = 'envoy_cluster_name=~"$cluster"'
LISTENER = 'envoy_http_conn_manager_prefix=~"$listener"'
POOL = 'pool=~"$pool"'
WINDOW = "$__rate_interval"


def quantile(q: float, histogram: str, matchers: str, by: str = "") -> str:
    """A quantile over all selected engines. `>= 0` drops the NaN of a time without observations."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({labels}) (rate({histogram}_bucket{{{matchers}}}[{WINDOW}]))) >= 0"


def mean(histogram: str, matchers: str, by: str = "") -> str:
    """Sum over count of the same window: the mean of the requests in it, not of the replicas' means."""
    clause = f" by ({by})" if by else ""
    total = f"sum{clause} (rate({histogram}_sum{{{matchers}}}[{WINDOW}]))"
    return f"{total} / (sum{clause} (rate({histogram}_count{{{matchers}}}[{WINDOW}])) > 0)"


def rate(counter: str, matchers: str, by: str = "") -> str:
    clause = f" by ({by})" if by else ""
    return f"sum{clause} (rate({counter}{{{matchers}}}[{WINDOW}]))"
