"""Grafana's dashboards as data, and as the JSON that Grafana reads: panels flow from left to right
in rows. What is on them is deploy/dashboards.py.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["timeseries", "stat", "table", "alertlist"]
Json = dict[str, Any]

PROMETHEUS = {"type": "prometheus", "uid": "prometheus"}
_WIDTH = 24
_HEADING_HEIGHT = 1
# What Grafana 12 writes; older ones are migrated when they are loaded.
_SCHEMA_VERSION = 41


@dataclass(frozen=True, slots=True)
class Query:
    """`is_instant`: the value now, over the range that is shown, for tables and totals."""

    expr: str
    legend: str = ""
    is_instant: bool = False
    has_exemplars: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """`unit` is Grafana's name. `stacked`: series that add up. `steps`: values from which on
    something is orange, then red; with two in falling order low values are the bad ones."""

    title: str
    queries: tuple[Query, ...] = ()
    description: str = ""
    kind: Kind = "timeseries"
    unit: str = "short"
    width: int = 8
    height: int = 8
    stacked: bool = False
    steps: tuple[float, float] | None = None
    max_value: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]


def render(dashboard: Dashboard) -> str:
    """The file that Grafana is given."""
    return json.dumps(_dashboard(dashboard), indent=1, ensure_ascii=False) + "\n"


def _dashboard(dashboard: Dashboard) -> Json:
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["radixgate"],
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "title": "radixgate",
                "type": "dashboards",
                "tags": ["radixgate"],
                "asDropdown": False,
                "keepTime": True,
            }
        ],
        "panels": _placed(dashboard.rows),
    }


def _placed(rows: tuple[Row, ...]) -> list[Json]:
    panels: list[Json] = []
    top = 0
    for row in rows:
        panels.append(_heading(row.title, number=len(panels) + 1, top=top))
        top += _HEADING_HEIGHT
        left, height = 0, 0
        for panel in row.panels:
            if left + panel.width > _WIDTH:
                left, top, height = 0, top + height, 0
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            panels.append(_panel(panel, number=len(panels) + 1, place=place))
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return panels


def _heading(title: str, *, number: int, top: int) -> Json:
    place = {"x": 0, "y": top, "w": _WIDTH, "h": _HEADING_HEIGHT}
    return {
        "id": number, "type": "row", "title": title, "gridPos": place, "collapsed": False,
        "panels": [],
    }  # fmt: skip


def _panel(panel: Panel, *, number: int, place: Json) -> Json:
    shown: Json = {
        "id": number, "type": panel.kind, "title": panel.title,
        "description": panel.description, "gridPos": place,
    }  # fmt: skip
    if panel.kind == "alertlist":
        return {**shown, "options": _alert_options()}
    return {
        **shown,
        "datasource": PROMETHEUS,
        "targets": [
            _target(query, "ABCDEFGHIJ"[i], panel.kind) for i, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel.kind),
    }


def _target(query: Query, name: str, kind: Kind) -> Json:
    return {
        "refId": name,
        "datasource": PROMETHEUS,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "instant": query.is_instant,
        "range": not query.is_instant,
        "exemplar": query.has_exemplars,
        "format": "table" if kind == "table" else "time_series",
    }


def _defaults(panel: Panel) -> Json:
    defaults: Json = {"unit": panel.unit, "min": 0, "thresholds": _thresholds(panel.steps)}
    if panel.max_value is not None:
        defaults["max"] = panel.max_value
    if panel.kind == "stat":
        defaults["color"] = {"mode": "thresholds"}
    if panel.kind == "timeseries":
        defaults["color"] = {"mode": "palette-classic"}
        defaults["custom"] = {
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 5,
            "showPoints": "never",
            "spanNulls": True,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        }
    return defaults


def _thresholds(steps: tuple[float, float] | None) -> Json:
    if steps is None:
        colors: list[tuple[float | None, str]] = [(None, "green")]
    elif steps[0] < steps[1]:
        colors = [(None, "green"), (steps[0], "orange"), (steps[1], "red")]
    else:
        colors = [(None, "red"), (steps[1], "orange"), (steps[0], "green")]
    return {"mode": "absolute", "steps": [{"value": v, "color": c} for v, c in colors]}


def _options(kind: Kind) -> Json:
    if kind == "stat":
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "area",
        }
    if kind == "table":
        return {"showHeader": True, "cellHeight": "sm"}
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _alert_options() -> Json:
    return {
        "alertInstanceLabelFilter": "",
        "datasource": "Prometheus",
        "groupMode": "default",
        "maxItems": 20,
        "sortOrder": 3,
        "stateFilter": {"error": True, "firing": True, "noData": False, "pending": True},
        "viewMode": "list",
    }
