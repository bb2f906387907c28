"""What a metric is, as data: telemetry/catalog.py has them all. Imports no library of metrics."""

from dataclasses import dataclass
from typing import Literal

MetricKind = Literal["counter", "gauge", "histogram"]

PREFIX = "radixgate_"
# What a label says of a value that is none of those it knows, or one too many.
OTHER = "other"


@dataclass(frozen=True, slots=True)
class Label:
    """One label. `values` are all that it has, but for OTHER; without any, `bound` says what bounds
    it. `attribute` is what OTLP calls it."""

    name: str
    values: tuple[str, ...] = ()
    bound: str = ""
    attribute: str = ""

    @property
    def attribute_name(self) -> str:
        return self.attribute or self.name

    def admit(self, value: str) -> str:
        """The value, or OTHER for one that is not known."""
        return value if not self.values or value in self.values else OTHER


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """One metric. `name` is its family in Prometheus, where counters get `_total` behind it; `unit`
    is UCUM's, as OTLP has it. `of_runtime`: the runtime counts it for all its gateways, each of
    which shows it. With `has_exemplars` observations name the trace they are of."""

    name: str
    kind: MetricKind
    text: str
    unit: str = ""
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    convention: str = ""
    of_runtime: bool = False
    has_exemplars: bool = False

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(label.name for label in self.labels)

    @property
    def exposed_name(self) -> str:
        """As queries name it; of a histogram without _bucket, _sum or _count."""
        return self.name + "_total" if self.kind == "counter" else self.name

    @property
    def prometheus_unit(self) -> str:
        """OpenMetrics' word for the unit, where the name ends in it as it demands."""
        unit = {"s": "seconds", "By": "bytes"}.get(self.unit, "")
        return unit if unit and self.name.endswith("_" + unit) else ""

    @property
    def otlp_name(self) -> str:
        """The conventions' name, or ours with a dot and without the seconds that are its unit:
        what translates OTLP to Prometheus makes the same name of it."""
        if self.convention:
            return self.convention
        stem = self.name.removeprefix(PREFIX)
        return "radixgate." + (stem.removesuffix("_seconds") if self.unit == "s" else stem)
