"""Queries and panels that both dashboards are made of.

Metrics that the runtime counts are shown by each of its gateways: their maximum is taken, never
their sum.
"""

from deploy.grafana_json import Panel, Query

_RANGE = "[$__rate_interval]"


def per_second(selector: str, *labels: str) -> str:
    """A rate of what gateways count, all of them together."""
    by = f" by ({', '.join(labels)})" if labels else ""
    return f"sum{by} (rate({selector}{_RANGE}))"


def of_runtime(selector: str, *labels: str) -> str:
    """A rate of what each gateway shows of the one runtime."""
    by = f" by ({', '.join(labels)})" if labels else ""
    return f"max{by} (rate({selector}{_RANGE}))"


def quantiles(histogram: str, *, has_exemplars: bool = False) -> tuple[Query, ...]:
    """Three lines of one histogram."""
    buckets = f"sum by (le) (rate({histogram}_bucket{_RANGE}))"
    return tuple(
        Query(f"histogram_quantile({q}, {buckets})", name, has_exemplars=has_exemplars and q == 0.5)
        for q, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    )


def limit(name: str) -> Query:
    """The line of a limit of goodput, where one is set."""
    return Query(f'max(radixgate_slo_seconds{{limit="{name}"}})', "limit")


def stat(title: str, expr: str, unit: str, *, steps: tuple[float, float] | None = None) -> Panel:
    """One number."""
    return Panel(title, (Query(expr),), kind="stat", unit=unit, width=4, height=4, steps=steps)
