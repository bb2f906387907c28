"""What GET /metrics answers: OpenMetrics with exemplars to who asks for it, else Prometheus' older
text, which has none.
"""

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

OPENMETRICS = "application/openmetrics-text"
_PLAIN = "text/plain"


def expose(registry: Collector, accept: str) -> tuple[bytes, str]:
    """The exposition and its content type. `accept` is the header, "" without one."""
    if wants_openmetrics(accept):
        body: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return body, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


def wants_openmetrics(accept: str) -> bool:
    """Whether it is named, and not less wanted than plain text."""
    weights: dict[str, float] = {}
    for part in accept.split(","):
        kind, *parameters = (one.strip().lower() for one in part.split(";"))
        weight = _weight(parameters)
        weights[kind] = max(weight, weights.get(kind, 0.0))
    wanted = weights.get(OPENMETRICS, 0.0)
    return wanted > 0 and wanted >= weights.get(_PLAIN, 0.0)


def _weight(parameters: list[str]) -> float:
    """1 where none is given; 0 for one that is no number."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
