"""Row: the engines one by one, and against each other."""

from __future__ import annotations

from dashboards.panels import Column, Query, Row, table, timeseries
from dashboards.selectors import ENGINE, WINDOW, rate

OUTLIER = ((None, "transparent"), (1.2, "yellow"), (1.5, "red"))

ROW = Row(
    "Engines",
    300,
    (
        table(
            "Engines",
            "The present state of each engine. The last two columns are ratios to the median of its "
            "peers over 5 minutes "
            "(at least three replicas with traffic): a red cell is that replica, not the load.",
            "instance",
            Column("Running", f"sum by (instance) (llm:requests_running{{{ENGINE}}})", "none"),
            Column("Waiting", f"sum by (instance) (llm:requests_waiting{{{ENGINE}}})", "none"),
            Column("KV cache", f"max by (instance) (llm:kv_cache_usage:ratio{{{ENGINE}}})", "percentunit"),
            Column("Tokens/s", rate("llm:generation_tokens_total", ENGINE, "instance"), "short"),
            Column("TTFT", f"max by (instance) (llm:ttft_mean_seconds:rate5m{{{ENGINE}}})", "s"),
            Column("ITL", f"max by (instance) (llm:itl_mean_seconds:rate5m{{{ENGINE}}})", "s"),
            Column(
                "TTFT / median",
                f'max by (instance) (llm:to_median:ratio{{{ENGINE},signal="ttft"}})',
                "none",
                OUTLIER,
            ),
            Column(
                "ITL / median",
                f'max by (instance) (llm:to_median:ratio{{{ENGINE},signal="itl"}})',
                "none",
                OUTLIER,
            ),
        ),
        timeseries(
            "Running requests",
            "Requests in the batch of each engine (`llm:requests_running`).",
            Query(f"sum by (instance) (llm:requests_running{{{ENGINE}}})", "{{instance}}"),
            unit="none",
        ),
        timeseries(
            "Waiting requests",
            "Requests in the queue of each engine (`llm:requests_waiting`). A queue on one engine is "
            "routing, "
            "a queue on all is load.",
            Query(f"sum by (instance) (llm:requests_waiting{{{ENGINE}}})", "{{instance}}"),
            unit="none",
        ),
        timeseries(
            "KV cache in use",
            "Share of KV blocks in use, of the fullest rank (`llm:kv_cache_usage:ratio`). Full is normal "
            "under load; "
            "full with preemptions or waiting requests is not.",
            Query(f"max by (instance) (llm:kv_cache_usage:ratio{{{ENGINE}}})", "{{instance}}"),
            unit="percentunit",
        ),
        timeseries(
            "Tokens generated",
            "Output tokens per second of each engine. Zero while requests run is a hung engine.",
            Query(rate("llm:generation_tokens_total", ENGINE, "instance"), "{{instance}}"),
            unit="short",
        ),
        timeseries(
            "Prompt tokens processed",
            "Prompt tokens per second of each engine, cached ones included.",
            Query(rate("llm:prompt_tokens_total", ENGINE, "instance"), "{{instance}}"),
            unit="short",
        ),
        timeseries(
            "Preemptions",
            "Running requests thrown out for KV space and computed again, per second.",
            Query(rate("llm:preemptions_total", ENGINE, "instance"), "{{instance}}"),
            unit="ops",
        ),
        timeseries(
            "ITL against the peers' median",
            "Mean inter-token latency over 5 minutes / median of the replicas of the same model. Needs "
            "three replicas "
            "with traffic.",
            Query(f'max by (instance) (llm:to_median:ratio{{{ENGINE},signal="itl"}})', "{{instance}}"),
            unit="none",
            limit=1.5,
            minimum=None,
            no_value="fewer than three replicas with traffic",
        ),
        timeseries(
            "TTFT against the peers' median",
            "Mean time to first token over 5 minutes / median of the replicas of the same model. Longer "
            "prompts on one replica "
            "raise it too.",
            Query(f'max by (instance) (llm:to_median:ratio{{{ENGINE},signal="ttft"}})', "{{instance}}"),
            unit="none",
            limit=1.5,
            minimum=None,
            no_value="fewer than three replicas with traffic",
        ),
        timeseries(
            "Prefix cache hit ratio",
            "Cached over looked-up tokens in the window (blocks before vLLM 0.9). No data while nothing is looked up.",
            Query(
                f"sum by (instance) (rate(llm:prefix_cache_hits_total{{{ENGINE}}}[{WINDOW}])) "
                f"/ (sum by (instance) (rate(llm:prefix_cache_queries_total{{{ENGINE}}}[{WINDOW}])) > 0)",
                "{{instance}}",
            ),
            unit="percentunit",
            no_value="no look-ups",
        ),
    ),
)
