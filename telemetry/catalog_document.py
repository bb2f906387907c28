"""The table of metrics in docs/observability.md, written from the catalog:
python -m telemetry.catalog_document prints what stands between the two marks there.

A test holds the page to what this gives.
"""

import sys
from collections.abc import Iterator

from telemetry.catalog import METRICS
from telemetry.metric_definition import Label, MetricDefinition

BEGIN, END = "<!-- metrics:begin -->", "<!-- metrics:end -->"


def table() -> str:
    """The lines between the marks."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "| name | kind | labels | in OTLP | meaning |"
    yield "| --- | --- | --- | --- | --- |"
    for metric in METRICS:
        yield _row(metric)


def _row(metric: MetricDefinition) -> str:
    labels = "; ".join(map(_label, metric.labels))
    unit = f" ({metric.unit})" if metric.unit else ""
    marks = "".join((" E" * metric.has_exemplars, " R" * metric.of_runtime))
    return (
        f"| `{metric.exposed_name}` | {metric.kind}{marks} | {labels} | {metric.otlp_name}{unit} "
        f"| {metric.text} |"
    )


def _label(label: Label) -> str:
    values = ", ".join(label.values) or label.bound
    attribute = f" (in OTLP {label.attribute})" if label.attribute else ""
    return f"{label.name}: {values}{attribute}"


if __name__ == "__main__":
    sys.stdout.write(table())
