"""The arena's results as one HTML page with plots, which needs nothing but itself."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from benchmarks.arena.compare import SERVED, Metric, Table
from benchmarks.arena.jobs import AGENT, ORACLE

Figure = dict[str, Any]  # as plotly.js takes it: data and layout

PER_DOLLAR = Metric("success_per_dollar", "successes per dollar", True, 0.0)
PALETTE = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#9c755f", "#76b7b2", "#edc948", "#ff9da7")
DASHES = ("solid", "dash", "dot")
OURS = "#d62728"
SERVED_COLOURS = ((0, "#d73027"), (0.5, "#fee08b"), (1, "#1a9850"))
CONFIG = {"displaylogo": False, "responsive": True}
BOUND = "#222222"


def page(table: Table, about: str, intervals: Mapping[str, tuple[float, float]], step_s: float) -> str:
    """`intervals`: each scenario's trigger, shaded in its plot; `step_s`: the curves' step."""
    figures = [("Calls served within the objective", heat(table))]
    for scenario in table.scenarios:
        figures.append((scenario, over_time(table, scenario, intervals.get(scenario), step_s)))
        figures.append(("", per_dollar(table, scenario)))
    body = "".join(_section(f"plot-{number}", title, figure) for number, (title, figure) in enumerate(figures))
    script = resources.files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>The arena</title>'
        "<style>body{font:15px/1.5 sans-serif;max-width:1100px;margin:2em auto;padding:0 1em}</style>"
        f"<script>{script}</script></head><body><h1>The arena: policies on the same traffic</h1>"
        f"<p>{html.escape(about)}</p>{body}</body></html>\n"
    )


def _section(name: str, title: str, figure: Figure) -> str:
    heading = f"<h2>{html.escape(title)}</h2>" if title else ""
    parts = (figure["data"], figure["layout"], CONFIG)
    given = ",".join(json.dumps(part).replace("</", "<\\/") for part in parts)
    return f'{heading}<div id="{name}"></div><script>Plotly.newPlot("{name}",{given})</script>'


def heat(table: Table) -> Figure:
    """Scenarios by policies, coloured by the share served."""
    rows = [[_percent(table, scenario, policy) for policy in table.policies] for scenario in table.scenarios]
    trace = {
        "type": "heatmap",
        "x": table.policies,
        "y": table.scenarios,
        "z": rows,
        "zmin": 0,
        "zmax": 100,
        "colorscale": SERVED_COLOURS,
        "texttemplate": "%{z:.0f}",
        "hovertemplate": "%{y}, %{x}: %{z:.1f} %<extra></extra>",
    }
    layout = {
        "height": 160 + 26 * len(table.scenarios),
        "margin": {"b": 20},
        "yaxis": {"autorange": "reversed", "automargin": True},
        "xaxis": {"side": "top", "automargin": True},
    }
    return {"data": [trace], "layout": layout}


def _percent(table: Table, scenario: str, policy: str) -> float | None:
    value = table.mean(scenario, policy, SERVED)
    return None if value is None else round(value * 100, 2)


def over_time(table: Table, scenario: str, trigger: tuple[float, float] | None, step_s: float) -> Figure:
    """Goodput ratio by arrival, one line a policy, first seed."""
    traces = []
    for number, policy in enumerate(table.policies):
        runs = table.runs(scenario, policy)
        if runs:
            times = [(k + 0.5) * step_s for k in range(len(runs[0].curve))]
            line = {
                "color": colour(policy, number),
                "width": 4 if policy == AGENT else 1.5,
                "dash": dash(policy, number),
            }
            traces.append(
                {"type": "scatter", "mode": "lines", "name": policy, "x": times, "y": runs[0].curve, "line": line}
            )
    shapes = (
        [
            {
                "type": "rect",
                "xref": "x",
                "yref": "paper",
                "x0": trigger[0],
                "x1": trigger[1],
                "y0": 0,
                "y1": 1,
                "fillcolor": "#d62728",
                "opacity": 0.1,
                "line": {"width": 0},
            }
        ]
        if trigger is not None
        else []
    )
    layout = {
        "height": 460,
        "margin": {"t": 20},
        "xaxis": {"title": {"text": "arrival, seconds"}},
        "yaxis": {"title": {"text": "answered before the client gave up"}, "range": [-0.02, 1.05], "tickformat": ".0%"},
        "shapes": shapes,
    }
    return {"data": traces, "layout": layout}


def per_dollar(table: Table, scenario: str) -> Figure:
    """Bars of successes per dollar with the range over the seeds."""
    policies = [p for p in table.policies if table.mean(scenario, p, PER_DOLLAR) is not None]
    values = {p: [s.success_per_dollar or 0.0 for s in table.scores(scenario, p)] for p in policies}
    means = [sum(values[p]) / len(values[p]) for p in policies]
    bar = {
        "type": "bar",
        "x": policies,
        "y": means,
        "marker": {"color": [OURS if p == AGENT else BOUND if p == ORACLE else PALETTE[0] for p in policies]},
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [max(values[p]) - mean for p, mean in zip(policies, means, strict=True)],
            "arrayminus": [mean - min(values[p]) for p, mean in zip(policies, means, strict=True)],
        },
    }
    layout = {
        "height": 320,
        "margin": {"t": 20},
        "yaxis": {"title": {"text": "served per dollar"}},
        "xaxis": {"automargin": True},
    }
    return {"data": [bar], "layout": layout}


def colour(policy: str, number: int) -> str:
    """Ours and the upper bound stand out."""
    return OURS if policy == AGENT else BOUND if policy == ORACLE else PALETTE[number % len(PALETTE)]


def dash(policy: str, number: int) -> str:
    return "solid" if policy == AGENT else DASHES[number // len(PALETTE) % len(DASHES)]
