"""Rows of panels to places on Grafana's grid of 24 columns, and the dashboard around them."""

from __future__ import annotations

from collections.abc import Iterable

from dashboards.panels import GRID_WIDTH, Json, Row

SCHEMA_VERSION = 39


def place(rows: Iterable[Row]) -> list[Json]:
    """Rendered panels, left to right and top to bottom; a row's header takes one line."""
    rendered: list[Json] = []
    top = 0
    for row in rows:
        rendered.append(
            {
                "id": row.first_id,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"h": 1, "w": GRID_WIDTH, "x": 0, "y": top},
                "panels": [],
            }
        )
        top += 1
        left = line_height = 0
        for number, panel in enumerate(row.panels, start=1):
            if left + panel.width > GRID_WIDTH:
                top += line_height
                left = line_height = 0
            rendered.append(panel.render(row.first_id + number, left, top))
            left += panel.width
            line_height = max(line_height, panel.height)
        top += line_height
    return rendered


def query_variable(name: str, label: str, series: str, of: str, *, regex: str = "") -> Json:
    """A multi-value variable: the values of label `of` on `series`, read again when the time changes."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "definition": f"label_values({series}, {of})",
        "query": {"query": f"label_values({series}, {of})", "refId": "variable"},
        "regex": regex,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
    }


def dashboard(
    *, uid: str, title: str, description: str, variables: list[Json], annotations: list[Json], rows: list[Row]
) -> Json:
    """The whole document. It names no data source and no absolute time, so it loads in anyone's Grafana."""
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["inferostat", "llm"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "templating": {"list": variables},
        "annotations": {"list": annotations},
        "links": [
            {
                "title": "inferostat dashboards",
                "type": "dashboards",
                "tags": ["inferostat"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "panels": place(rows),
    }
