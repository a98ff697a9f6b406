"""Row: is the agent itself well, and what does it do."""

from __future__ import annotations

from dashboards.panels import Json, Query, Row, stat, timeseries
from dashboards.selectors import WINDOW

PAUSED: Json = {
    "type": "value",
    "options": {
        "0": {"text": "acting as configured", "color": "green"},
        "1": {"text": "paused", "color": "orange"},
    },
}

# zero only where there is an agent to say so
NONE_FOUND = "0 * max(inferostat_paused)"

ROW = Row(
    "Agent",
    600,
    (
        stat(
            "Paused",
            "Whether a human has stopped all acting (`inferostat_paused`).",
            Query("max(inferostat_paused)"),
            unit="none",
            steps=((None, "green"), (1, "orange")),
            mappings=(PAUSED,),
            no_value="no agent",
        ),
        stat(
            "Last cycle",
            "Time since the last control cycle ended.",
            Query("time() - max(inferostat_last_cycle_timestamp_seconds)"),
            unit="s",
            steps=((None, "green"), (60, "red")),
            no_value="no agent",
        ),
        stat(
            "Targets up",
            "Share of the agent's targets whose last scrape worked.",
            Query("avg(inferostat_target_up)"),
            unit="percentunit",
            steps=((None, "red"), (0.5, "orange"), (1, "green")),
            no_value="no agent",
        ),
        stat(
            "Oldest scrape",
            "Age of the oldest good scrape among the agent's targets. Old data suspends decisions.",
            Query("max(inferostat_target_scrape_age_seconds)"),
            unit="s",
            steps=((None, "green"), (60, "red")),
            no_value="no agent",
        ),
        stat(
            "Findings",
            "Findings of the severities warning and critical that hold now.",
            Query('count(inferostat_finding_active{severity=~"warning|critical"}) or ' + NONE_FOUND),
            unit="none",
            steps=((None, "green"), (1, "orange")),
            no_value="no agent",
        ),
        stat(
            "Actions in the window",
            "Actions applied within the dashboard's time range.",
            Query('sum(increase(inferostat_actions_total{status="applied"}[$__range]))'),
            unit="none",
            no_value="no agent",
        ),
        timeseries(
            "Cycle duration, p95",
            "95th percentile of each phase of the control cycle (`inferostat_cycle_duration_seconds`).",
            Query(
                "histogram_quantile(0.95, sum by (le, phase) "
                f"(rate(inferostat_cycle_duration_seconds_bucket[{WINDOW}]))) >= 0",
                "{{phase}}",
            ),
            unit="s",
        ),
        timeseries(
            "Actions by outcome",
            "Actions per minute by what became of them: applied, ignored, conflict, failed, advised.",
            Query(f"60 * sum by (status) (rate(inferostat_actions_total[{WINDOW}]))", "{{status}}"),
            Query(f"60 * sum(rate(inferostat_reverts_total[{WINDOW}]))", "reverted"),
            unit="opm",
        ),
        timeseries(
            "Findings active",
            "Findings that hold, by severity (`inferostat_finding_active`).",
            *(
                Query(
                    f'count(inferostat_finding_active{{severity="{severity}"}}) or {NONE_FOUND}',
                    severity,
                )
                for severity in ("critical", "warning", "info")
            ),
            unit="none",
        ),
        timeseries(
            "Targets up by role",
            "Targets whose last scrape worked, by role (`inferostat_target_up`).",
            Query("sum by (role) (inferostat_target_up)", "{{role}}"),
            unit="none",
        ),
        timeseries(
            "Scrape age by role",
            "Age of the oldest good scrape of each role.",
            Query("max by (role) (inferostat_target_scrape_age_seconds)", "{{role}}"),
            unit="s",
        ),
        timeseries(
            "Levers",
            "Values the agent read back: replicas (scale), weight 0 to 100, percent admitted, requests "
            "in flight (breaker). "
            "A limit that is off has no line.",
            Query("max by (lever, target) (inferostat_lever_value)", "{{lever}} {{target}}"),
            unit="none",
        ),
    ),
)
