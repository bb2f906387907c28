"""Recording rules and alerts ask for what there is, and each alert is explained and tested."""

import re
from typing import Any

import pytest
import yaml

from telemetry.catalog import METRICS
from tests.metric_queries import RULES, known_series, problems, recording_rules, rules
from tests.model_file import ROOT
from tests.promql import selectors

ALERTS = rules("alerts.yml")
CASES: list[dict[str, Any]] = [
    case
    for file in sorted(RULES.glob("*_test.yml"))
    for case in yaml.safe_load(file.read_text())["tests"]
]
NAMES = [alert["alert"] for alert in ALERTS]


def expected(name: str) -> list[bool]:
    """Of each time that the alert's cases look at it, whether it is to fire."""
    looks = [look for case in CASES for look in case.get("alert_rule_test", ())]
    return [bool(look["exp_alerts"]) for look in looks if look["alertname"] == name]


def anchor(heading: str) -> str:
    """As pages of Markdown are linked into."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_every_rule_asks_for_metrics_and_labels_that_exist() -> None:
    every = [rule["expr"] for rule in (*rules("recording.yml"), *ALERTS)]
    assert len(every) > 15
    assert [(query, found) for query in every if (found := problems(query))] == []


def test_rules_never_add_up_what_the_runtime_counts_for_all_gateways() -> None:
    of_runtime = {metric.exposed_name for metric in METRICS if metric.of_runtime}
    for rule in (*rules("recording.yml"), *ALERTS):
        if of_runtime & {selector.metric for selector in selectors(rule["expr"])}:
            assert "sum" not in rule["expr"], rule


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_is_seen_to_fire_and_not_to_fire(name: str) -> None:
    assert set(expected(name)) == {True, False}


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_an_alert_has_a_severity_a_summary_and_a_section(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("page", "ticket")
    assert len(alert["annotations"]["summary"]) > 10
    page, _, section = alert["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), flags=re.M)
    assert section == alert["alert"].lower()
    assert section in {anchor(heading) for heading in headings}


def test_cases_are_made_of_series_that_exist() -> None:
    series = [entry["series"] for case in CASES for entry in case["input_series"]]
    # A case may be of another time's target label.
    assert [(text, found) for text in series if (found := problems(text))] == []
    assert len(series) > 30


def test_recording_rules_are_named_for_what_they_record() -> None:
    assert all(re.fullmatch(r"radixgate:[a-z_]+:\w+", name) for name in recording_rules())
    assert set(recording_rules()) <= known_series().keys()


def test_a_rule_that_is_never_asked_for_is_not_recorded() -> None:
    dashboards = "".join(
        path.read_text() for path in (ROOT / "deploy/grafana/dashboards").iterdir()
    )
    alerts = (RULES / "alerts.yml").read_text()
    assert [name for name in recording_rules() if name not in dashboards + alerts] == []
