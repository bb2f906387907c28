"""The catalog: complete, consistent, and what the documentation shows."""

import re
from pathlib import Path
from typing import get_args

import pytest

from prefix_cache.explain import OwnMissReason
from telemetry import catalog
from telemetry.catalog import METRICS
from telemetry.catalog_document import BEGIN, END, table
from telemetry.metric_definition import OTHER, Label, MetricDefinition

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs/observability.md"
# UCUM's units and what Prometheus' translation of OTLP makes of them; words in braces are no unit.
UNITS = {"s": "seconds", "By": "bytes", "": ""}


def translated(metric: MetricDefinition) -> str:
    """The name that a Prometheus makes of the OTLP name, with its suffixes for unit and kind."""
    name = metric.otlp_name.replace(".", "_")
    unit = UNITS.get(metric.unit, "")
    if unit and unit not in name.split("_"):
        name += "_" + unit
    return name + "_total" if metric.kind == "counter" else name


def test_the_documented_table_is_what_the_catalog_gives() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    documented = text.partition(BEGIN + "\n")[2].partition(END)[0]
    assert documented == table(), (
        "run `python -m telemetry.catalog_document` and put its lines between the marks"
    )


def test_no_name_is_there_twice() -> None:
    for names in (
        [metric.name for metric in METRICS],
        [metric.exposed_name for metric in METRICS],
        [metric.otlp_name for metric in METRICS],
    ):
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_definition_is_whole(metric: MetricDefinition) -> None:
    assert re.fullmatch(r"radixgate_[a-z_]+[a-z]", metric.name)
    assert not metric.name.endswith("_total")
    assert metric.text.endswith(".")
    assert "|" not in metric.text
    assert metric.unit in UNITS or re.fullmatch(r"\{[a-z]+\}", metric.unit)
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert (metric.unit == "s") == metric.name.endswith("_seconds")
    assert all(label.values or label.bound for label in metric.labels)
    assert not metric.has_exemplars or metric.kind == "histogram"


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_otlp_becomes_the_same_name_in_prometheus_unless_a_convention_has_another(
    metric: MetricDefinition,
) -> None:
    expected = metric.exposed_name
    if metric.convention:
        expected = metric.convention.replace(".", "_") + "_seconds"
    assert translated(metric) == expected


def test_a_label_knows_its_values_and_no_others() -> None:
    label = Label("kind", ("a", "b"))
    assert [label.admit(value) for value in ("a", "b", "c", "")] == ["a", "b", OTHER, OTHER]
    assert Label("name", bound="few").admit("anything") == "anything"


def test_reasons_for_misses_are_those_that_a_request_can_have() -> None:
    assert get_args(OwnMissReason) == catalog.MISS_REASONS


def test_the_catalog_has_every_definition_once() -> None:
    defined = [value for value in vars(catalog).values() if isinstance(value, MetricDefinition)]
    assert list(METRICS) == defined
    assert [catalog.BY_NAME[metric.name] for metric in METRICS] == defined


def test_names_of_metrics_are_written_in_the_catalog_only() -> None:
    """In code, where a name would be a second definition."""
    found = {
        path.relative_to(ROOT)
        for package in ("gateway", "runtime", "telemetry")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r'"radixgate_[a-z_]+"', path.read_text(encoding="utf-8"))
    }
    assert found <= {Path("telemetry/catalog.py"), Path("telemetry/metric_definition.py")}
