"""Row: what users get, and what it costs."""

from __future__ import annotations

from dashboards.panels import Panel, Query, Row, heatmap, stat, timeseries
from dashboards.selectors import ENGINE, POOL, WINDOW, mean, quantile, rate

MEASURED_BY_AGENT = "Measured by the agent at the gateway; no data without an agent."


def _latency(title: str, histogram: str, text: str) -> Panel:
    return timeseries(
        title,
        f"{text} From `{histogram}`; quantiles are interpolated inside a bucket, the mean is exact. "
        "Requests given up before they finish are in no histogram of the engine.",
        Query(quantile(0.5, histogram, ENGINE), "p50"),
        Query(quantile(0.95, histogram, ENGINE), "p95"),
        Query(mean(histogram, ENGINE), "mean"),
        unit="s",
        width=6,
        no_value="no traffic",
    )


def _ttft_attainment() -> str:
    good = f'sum(rate(llm:ttft_seconds_bucket{{{ENGINE},le="$ttft_slo"}}[{WINDOW}]))'
    return f"{good} / (sum(rate(llm:ttft_seconds_count{{{ENGINE}}}[{WINDOW}])) > 0)"


ROW = Row(
    "Golden signals",
    100,
    (
        stat(
            "Offered",
            f"First attempts per second. {MEASURED_BY_AGENT}",
            Query(f"sum(inferostat_pool_offered_rate{{{POOL}}})"),
            unit="reqps",
        ),
        stat(
            "Goodput",
            f"Answers per second that finished inside the objectives before the client gave up. {MEASURED_BY_AGENT}",
            Query(f"sum(inferostat_pool_goodput_rate{{{POOL}}})"),
            unit="reqps",
        ),
        stat(
            "TTFT p95",
            "95th percentile of the time to first token over the selected engines (`llm:ttft_seconds`).",
            Query(quantile(0.95, "llm:ttft_seconds", ENGINE)),
            unit="s",
            no_value="no traffic",
        ),
        stat(
            "ITL p95",
            "95th percentile of the time between two tokens over the selected engines (`llm:itl_seconds`).",
            Query(quantile(0.95, "llm:itl_seconds", ENGINE)),
            unit="s",
            no_value="no traffic",
        ),
        stat(
            "TTFT within $ttft_slo s",
            "Share of first tokens at or below the chosen bucket bound. Aborted requests are not in it, "
            "so it "
            "flatters a collapse; compare with goodput.",
            Query(_ttft_attainment()),
            unit="percentunit",
            steps=((None, "red"), (0.95, "orange"), (0.99, "green")),
            no_value="no traffic",
        ),
        stat(
            "Success per dollar",
            f"Goodput over the price of every allocated replica, warming and idle ones included. {MEASURED_BY_AGENT}",
            Query(f"avg(inferostat_pool_success_per_dollar{{{POOL}}})"),
            unit="short",
        ),
        timeseries(
            "Offered, attempts and goodput",
            "The gap between offered and attempts is retries; the gap between offered and goodput is "
            "what users "
            f"miss. {MEASURED_BY_AGENT}",
            Query(f"sum by (pool) (inferostat_pool_offered_rate{{{POOL}}})", "offered {{pool}}"),
            Query(f"sum by (pool) (inferostat_pool_attempts_rate{{{POOL}}})", "attempts {{pool}}"),
            Query(f"sum by (pool) (inferostat_pool_goodput_rate{{{POOL}}})", "goodput {{pool}}"),
            Query(f"sum by (pool) (inferostat_pool_capacity_rate{{{POOL}}})", "capacity {{pool}}"),
            unit="reqps",
            width=12,
        ),
        timeseries(
            "Success per dollar",
            f"By pool. Retries, failures, aborted work and idle replicas all lower it. {MEASURED_BY_AGENT}",
            Query(f"avg by (pool) (inferostat_pool_success_per_dollar{{{POOL}}})", "{{pool}}"),
            unit="short",
            width=12,
        ),
        _latency("Time to first token", "llm:ttft_seconds", "Queue, prefill and the first step of decode."),
        _latency("Inter-token latency", "llm:itl_seconds", "One sample a token (steps of decode)."),
        _latency(
            "Queue time",
            "llm:queue_time_seconds",
            "Time a request waited before the engine ran it. The first bucket ends at 0.3 s: below that only "
            "the mean means something.",
        ),
        _latency("Whole answer", "llm:e2e_seconds", "From arrival at the engine to the last token."),
        heatmap(
            "Time to first token, distribution",
            "First tokens a bucket of `llm:ttft_seconds`. Two bands mean two populations: cache hits and "
            "misses, "
            "or one slow replica.",
            Query(
                f"sum by (le) (increase(llm:ttft_seconds_bucket{{{ENGINE}}}[{WINDOW}]))",
                "{{le}}",
                form="heatmap",
            ),
            unit="s",
        ),
        timeseries(
            "Finished by reason",
            "Requests per second that engines ended, by reason (`llm:requests_finished_total`). Engines "
            "count "
            "aborts and errors here too, and may leave out clients that disconnect.",
            Query(rate("llm:requests_finished_total", ENGINE, "finished_reason"), "{{finished_reason}}"),
            unit="reqps",
            stack=True,
        ),
        timeseries(
            "Error budget burn, TTFT",
            "How many times faster than allowed the budget of the recorded objective (99 % within 2.5 s) "
            "is spent. "
            "14.4 for an hour spends 2 % of a 30-day budget and pages.",
            Query(
                'slo:current_burn_rate:ratio{sloth_id="llm-ttft",job=~"$job",model_name=~"$model_name"}',
                "{{model_name}}",
            ),
            unit="none",
            limit=14.4,
            no_value="no traffic",
        ),
    ),
)
