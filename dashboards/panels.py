"""Panels as values, rendered to Grafana's classic JSON (schema 39, which Grafana 10.4 and later read)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Json = dict[str, object]

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
GRID_WIDTH = 24


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL query of a panel. `instant` asks for the present only (stats and tables)."""

    expr: str
    legend: str = ""
    instant: bool = False
    form: str = "time_series"

    def render(self, ref: str) -> Json:
        return {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "format": self.form,
            "instant": self.instant,
            "legendFormat": self.legend or "__auto",
            "range": not self.instant,
            "refId": ref,
        }


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel without its place. `steps` are thresholds (value, colour); the first value is None (base)."""

    kind: str
    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str
    width: int = 8
    height: int = 8
    steps: tuple[tuple[float | None, str], ...] = ((None, "green"),)
    no_value: str = "no data"
    defaults: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    overrides: tuple[Json, ...] = ()
    transformations: tuple[Json, ...] = ()

    def render(self, panel_id: int, x: int, y: int) -> Json:
        refs = "ABCDEFGHIJKLMNOP"
        return {
            "id": panel_id,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": DATASOURCE,
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "targets": [query.render(ref) for ref, query in zip(refs, self.queries, strict=False)],
            "fieldConfig": {
                "defaults": {
                    "unit": self.unit,
                    "noValue": self.no_value,
                    "thresholds": {
                        "mode": "absolute",
                        "steps": [{"color": color, "value": value} for value, color in self.steps],
                    },
                    **self.defaults,
                },
                "overrides": list(self.overrides),
            },
            "options": dict(self.options),
            "transformations": list(self.transformations),
        }


@dataclass(frozen=True, slots=True)
class Row:
    """A titled row. Ids count from `first_id`: a new panel in one row leaves the links to others alone."""

    title: str
    first_id: int
    panels: tuple[Panel, ...]


def timeseries(
    title: str,
    description: str,
    *queries: Query,
    unit: str,
    width: int = 8,
    stack: bool = False,
    minimum: float | None = 0,
    limit: float | None = None,
    no_value: str = "no data",
) -> Panel:
    """Lines over time. `limit` draws a line at that value and colours what is above it."""
    custom: Json = {
        "lineWidth": 1,
        "fillOpacity": 30 if stack else 8,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stack else "none"},
        "thresholdsStyle": {"mode": "off" if limit is None else "line"},
    }
    defaults: Json = {"custom": custom, "color": {"mode": "palette-classic"}}
    if minimum is not None:
        defaults["min"] = minimum
    return Panel(
        "timeseries", title, description, queries, unit, width,
        steps=((None, "green"),) if limit is None else ((None, "green"), (limit, "orange")),
        no_value=no_value,
        defaults=defaults,
        options={
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    )  # fmt: skip


def stat(
    title: str,
    description: str,
    query: Query,
    *,
    unit: str,
    width: int = 4,
    steps: tuple[tuple[float | None, str], ...] = ((None, "text"),),
    mappings: tuple[Json, ...] = (),
    no_value: str = "no data",
) -> Panel:
    """One number with its recent course behind it."""
    return Panel(
        "stat", title, description, (query,), unit, width, height=4, steps=steps, no_value=no_value,
        defaults={"color": {"mode": "thresholds"}, "mappings": list(mappings)},
        options={
            "colorMode": "value",
            "graphMode": "area",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "auto",
        },
    )  # fmt: skip


def heatmap(title: str, description: str, query: Query, *, unit: str, width: int = 8) -> Panel:
    """Buckets of a histogram over time; `unit` is that of the bucket bounds."""
    return Panel(
        "heatmap", title, description, (query,), unit, width,
        defaults={"custom": {"scaleDistribution": {"type": "linear"}}},
        options={
            "calculate": False,
            "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
            "yAxis": {"unit": unit},
            "tooltip": {"mode": "single"},
        },
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: one instant query, aggregated to the table's key."""

    title: str
    expr: str
    unit: str
    steps: tuple[tuple[float | None, str], ...] = ()


def table(title: str, description: str, key: str, *columns: Column, width: int = GRID_WIDTH) -> Panel:
    """One line for each value of the label `key`; columns with thresholds get a coloured background."""
    queries = tuple(Query(column.expr, instant=True, form="table") for column in columns)
    names = {f"Value #{ref}": column.title for ref, column in zip("ABCDEFGHIJKLMNOP", columns, strict=False)}
    overrides = tuple(_column_style(column) for column in columns)
    hidden = {f"Time {number}": True for number in range(1, len(columns) + 1)} | {"Time": True}
    organise: Json = {"excludeByName": hidden, "indexByName": {key: 0}, "renameByName": names}
    return Panel(
        "table", title, description, queries, "short", width,
        defaults={"custom": {"align": "auto", "cellOptions": {"type": "auto"}}},
        options={"showHeader": True},
        overrides=overrides,
        transformations=(
            {"id": "joinByField", "options": {"byField": key, "mode": "outer"}},
            {"id": "organize", "options": organise},
        ),
    )  # fmt: skip


def _column_style(column: Column) -> Json:
    properties: list[Json] = [{"id": "unit", "value": column.unit}]
    if column.steps:
        steps = [{"color": color, "value": value} for value, color in column.steps]
        properties += [
            {"id": "thresholds", "value": {"mode": "absolute", "steps": steps}},
            {"id": "custom.cellOptions", "value": {"type": "color-background", "mode": "basic"}},
        ]
    return {"matcher": {"id": "byName", "options": column.title}, "properties": properties}
