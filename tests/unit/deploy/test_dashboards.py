"""Dashboards are what their program makes, and ask for what there is."""

import json
import re
from typing import Any

import pytest
import yaml

from deploy.dashboards import DASHBOARDS, FOLDER
from deploy.grafana_json import render
from telemetry.catalog import METRICS
from tests.metric_queries import known_series, problems
from tests.model_file import ROOT
from tests.promql import outer_labels, selectors

PROVISIONING = ROOT / "deploy/grafana/provisioning"


def panels() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{name}: {panel['title']}", panel)
        for name in DASHBOARDS
        for panel in json.loads((FOLDER / name).read_text())["panels"]
    ]


def queries() -> list[tuple[str, str, str]]:
    return [
        (where, target["expr"], target["legendFormat"])
        for where, panel in panels()
        for target in panel.get("targets", ())
    ]


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_the_file_is_what_the_program_makes(name: str) -> None:
    made = render(DASHBOARDS[name])
    assert (FOLDER / name).read_text() == made, "run python -m deploy.dashboards"


def test_there_is_no_other_dashboard() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(DASHBOARDS)


def test_every_query_asks_for_metrics_and_labels_that_exist() -> None:
    assert len(queries()) > 60
    assert [(where, found) for where, query, _ in queries() if (found := problems(query))] == []


def test_every_legend_names_labels_that_the_result_has() -> None:
    wrong = [
        (where, legend)
        for where, query, legend in queries()
        if not set(re.findall(r"{{(\w+)}}", legend)) <= (outer_labels(query) or set())
    ]
    assert wrong == []


def test_what_the_runtime_counts_for_all_gateways_is_never_added_up() -> None:
    of_runtime = {metric.exposed_name for metric in METRICS if metric.of_runtime}
    summed = [
        (where, query)
        for where, query, _ in queries()
        if re.search(r"\bsum\b", query)
        and {selector.metric for selector in selectors(query)} & of_runtime
    ]
    assert summed == []


def test_every_metric_is_on_a_dashboard_or_left_out_by_name() -> None:
    shown = {s.metric for _, query, _ in queries() for s in selectors(query)}
    recorded = {s.metric for query in _recordings() for s in selectors(query)}
    left_out = {
        "radixgate_cache_tier_pages",  # bytes say it
        "radixgate_cache_tier_pages_fetched_total",
        "radixgate_cache_tier_pages_stored_total",
        "radixgate_metric_exports_total",  # Prometheus scrapes: nothing is sent
    }
    absent = {
        metric.exposed_name
        for metric in METRICS
        if {metric.exposed_name, f"{metric.name}_bucket"}.isdisjoint(shown | recorded)
    }
    assert absent == left_out


def _recordings() -> list[str]:
    text = (ROOT / "deploy/prometheus/recording.yml").read_text()
    return [rule["expr"] for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_panels_lie_within_the_width_and_on_no_other(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads((FOLDER / name).read_text())["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_every_panel_has_a_number_of_its_own(name: str) -> None:
    numbers = [panel["id"] for panel in json.loads((FOLDER / name).read_text())["panels"]]
    assert len(set(numbers)) == len(numbers)


def data_sources() -> dict[str, dict[str, Any]]:
    file = PROVISIONING / "datasources/datasources.yaml"
    return {source["uid"]: source for source in yaml.safe_load(file.read_text())["datasources"]}


def test_panels_use_the_data_sources_that_are_provisioned() -> None:
    used = {
        (p["datasource"]["uid"], p["datasource"]["type"]) for _, p in panels() if "targets" in p
    }
    assert used == {("prometheus", "prometheus")}
    assert data_sources()["prometheus"]["type"] == "prometheus"


def test_exemplars_lead_to_jaeger_by_the_name_that_they_have() -> None:
    (destination,) = data_sources()["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert destination == {"name": "trace_id", "datasourceUid": "jaeger"}
    assert data_sources()["jaeger"]["type"] == "jaeger"


def test_exemplars_are_asked_for_where_there_are_some() -> None:
    with_exemplars = {f"{metric.name}_bucket" for metric in METRICS if metric.has_exemplars}
    asked = {
        selector.metric
        for _, panel in panels()
        for target in panel.get("targets", ())
        if target["exemplar"]
        for selector in selectors(target["expr"])
    }
    assert asked
    assert asked <= with_exemplars


def test_dashboards_are_provisioned_from_where_they_are_mounted() -> None:
    file = PROVISIONING / "dashboards/dashboards.yaml"
    (provider,) = yaml.safe_load(file.read_text())["providers"]
    assert provider["options"]["path"] == "/etc/grafana/dashboards"
    assert "radixgate:ttft_seconds:p95_5m" in known_series()
