"""What is wrong with a query: metrics, labels and values of labels that do not exist."""

from collections.abc import Iterator, Mapping

import yaml

from telemetry.catalog import METRICS
from telemetry.metric_definition import MetricDefinition
from tests.model_file import ROOT
from tests.promql import Selector, outer_labels, selectors

RULES = ROOT / "deploy/prometheus"
# Prometheus adds them to whatever it scrapes.
_TARGET_LABELS: dict[str, tuple[str, ...]] = {"job": (), "instance": ()}
_OF_PROMETHEUS = ("up",)


def rules(file: str) -> list[dict[str, str]]:
    groups = yaml.safe_load((RULES / file).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def recording_rules() -> dict[str, str]:
    return {rule["record"]: rule["expr"] for rule in rules("recording.yml")}


def known_series() -> dict[str, Mapping[str, tuple[str, ...]]]:
    """Names that a query may ask for, and of each its labels with their values: () is any."""
    known: dict[str, Mapping[str, tuple[str, ...]]] = dict.fromkeys(_OF_PROMETHEUS, _TARGET_LABELS)
    for metric in METRICS:
        known |= dict(_exposed(metric))
    for name, query in recording_rules().items():
        known[name] = dict.fromkeys(outer_labels(query) or (), ())
    return known


def _exposed(metric: MetricDefinition) -> Iterator[tuple[str, Mapping[str, tuple[str, ...]]]]:
    labels = {label.name: label.values for label in metric.labels} | _TARGET_LABELS
    if metric.kind != "histogram":
        yield metric.exposed_name, labels
        return
    yield f"{metric.name}_bucket", labels | {"le": ()}
    yield f"{metric.name}_sum", labels
    yield f"{metric.name}_count", labels


def problems(query: str) -> list[str]:
    """Empty for a query that can find something."""
    known = known_series()
    return [text for selector in selectors(query) for text in _problems(selector, known)]


def _problems(
    selector: Selector, known: Mapping[str, Mapping[str, tuple[str, ...]]]
) -> Iterator[str]:
    labels = known.get(selector.metric)
    if labels is None:
        yield f"there is no metric {selector.metric}"
        return
    for label in sorted(selector.grouped_by - labels.keys()):
        yield f"{selector.metric} has no label {label}"
    for matcher in selector.matchers:
        if matcher.label not in labels:
            yield f"{selector.metric} has no label {matcher.label}"
            continue
        values = labels[matcher.label]
        wanted = matcher.value.split("|") if "~" in matcher.operator else [matcher.value]
        for value in wanted:
            if values and value not in values:
                yield f"{selector.metric}: {matcher.label} is never {value}"
