"""The server's Prometheus metrics, in a registry of their own; names are in names.py.

Labels are bounded: routes are templates from a fixed set, reasons a limited number.
"""

import threading
from collections.abc import Callable, Collection, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from telemetry import names
from telemetry.engine_collector import EngineCollector, EngineStatsLike, ReadStats
from telemetry.token_histogram import TokenHistogram

__all__ = ["EngineStatsLike", "Metrics"]

ROUTES = frozenset(
    {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/models",
        "/v1/models/{id}",
        "/health",
        "/ready",
        "/version",
        "/metrics",
    }
)
OTHER = "other"
_MAX_REASONS = 32

# The first rows are the buckets that OpenTelemetry's GenAI conventions advise; small models on a
# loaded CPU need the last ones, decode on a GPU the first of the inter-token ones.
TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
INTER_TOKEN_BUCKETS = (
    *(0.0025, 0.005),
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
    *(5.0, 10.0, 20.0, 40.0, 80.0),
)
COMPILE_BUCKETS = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.15, 0.5, 1.0, 2.0, 5.0, 10.0)
DURATION_BUCKETS = tuple(0.01 * 2**i for i in range(16))


class Metrics:
    """One per server. All methods are thread-safe."""

    def __init__(self, *, routes: Collection[str] = ROUTES) -> None:
        # Creation times would double the number of series. The library has one switch for all.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry(auto_describe=False)
        self._routes = frozenset(routes)
        self._reasons = _BoundedNames(_MAX_REASONS)
        self._make_request_metrics()
        self._make_token_metrics()
        self._make_constraint_metrics()

    def _make_request_metrics(self) -> None:
        self._requests = Counter(
            names.METRIC_REQUESTS,
            "Finished requests; outcome is ok, aborted, error or rejected.",
            ["route", "outcome", "status"],
            registry=self._registry,
        )
        self._duration = Histogram(
            names.METRIC_REQUEST_DURATION,
            "Seconds from a request's acceptance to its last byte.",
            ["route"],
            buckets=DURATION_BUCKETS,
            registry=self._registry,
        )
        self._rejected = Counter(
            names.METRIC_REJECTED,
            "Requests refused before they reached the engine, by reason.",
            ["reason"],
            registry=self._registry,
        )
        self._ignored = Counter(
            names.METRIC_IGNORED,
            "Parameters of requests that were accepted without effect, by name.",
            ["name"],
            registry=self._registry,
        )
        self._key_file_reads = Counter(
            names.METRIC_KEY_FILE_READS,
            "Times that a changed key file was read; outcome is ok or error (the old keys stay).",
            ["outcome"],
            registry=self._registry,
        )
        self._redis_failures = Counter(
            names.METRIC_REDIS_FAILURES,
            "Calls to Redis that failed or were not answered in time; counting went on without it.",
            registry=self._registry,
        )

    def _make_token_metrics(self) -> None:
        self._ttft = Histogram(
            names.METRIC_TTFT,
            "Seconds from a request's start to its first token.",
            buckets=TTFT_BUCKETS,
            registry=self._registry,
        )
        self._inter_token = TokenHistogram(
            names.METRIC_INTER_TOKEN,
            "Seconds between two tokens of one answer, one observation for each token.",
            bounds=INTER_TOKEN_BUCKETS,
        )
        self._registry.register(self._inter_token)
        self._prompt_tokens = Counter(
            names.METRIC_PROMPT_TOKENS,
            "Prompt tokens of answered requests, cached ones included.",
            registry=self._registry,
        )
        self._cached_tokens = Counter(
            names.METRIC_CACHED_TOKENS,
            "Prompt tokens whose computation was found in the cache.",
            registry=self._registry,
        )
        self._written_tokens = Counter(
            names.METRIC_CACHE_WRITTEN_TOKENS,
            "Prompt tokens that were computed and left in the cache.",
            registry=self._registry,
        )
        self._generated_tokens = Counter(
            names.METRIC_GENERATED_TOKENS,
            "Tokens generated for answers.",
            registry=self._registry,
        )

    def _make_constraint_metrics(self) -> None:
        self._constraints = Counter(
            names.METRIC_CONSTRAINTS,
            "Constrained requests; class is enforced or checked.",
            ["class", "engine", "kind"],
            registry=self._registry,
        )
        self._compile = Histogram(
            names.METRIC_GRAMMAR_COMPILE,
            "Seconds from a new constraint to its first mask.",
            buckets=COMPILE_BUCKETS,
            registry=self._registry,
        )
        self._violations = Counter(
            names.METRIC_CONSTRAINT_VIOLATIONS,
            "Complete answers that did not fit their constraint and were not given. Stays 0.",
            registry=self._registry,
        )
        self._retries = Counter(
            names.METRIC_CONSTRAINT_RETRIES,
            "Times that a part of a checked answer was generated anew.",
            registry=self._registry,
        )
        self._retried_tokens = Counter(
            names.METRIC_RETRIED_TOKENS,
            "Tokens of checked answers that were thrown away.",
            registry=self._registry,
        )

    def constrained(
        self, *, enforcement: str, engine: str, kind: str, compile_s: float | None
    ) -> None:
        """`compile_s` None: the constraint was known."""
        self._constraints.labels(enforcement, engine, kind).inc()
        if compile_s is not None:
            self._compile.observe(compile_s)

    def constraint_violated(self) -> None:
        self._violations.inc()

    def count_retries(self, num_retries: int, *, num_tokens: int) -> None:
        self._retries.inc(num_retries)
        self._retried_tokens.inc(num_tokens)

    def request_finished(self, *, route: str, outcome: str, status: int, duration_s: float) -> None:
        """`route` is the template; one that is not served counts as "other"."""
        known = route if route in self._routes else OTHER
        self._requests.labels(route=known, outcome=outcome, status=str(status)).inc()
        self._duration.labels(route=known).observe(duration_s)

    def rejected(self, reason: str) -> None:
        self._rejected.labels(reason=self._reasons.admit(reason)).inc()

    def parameter_ignored(self, name: str) -> None:
        self._ignored.labels(name=name).inc()

    def key_file_read(self, is_ok: bool) -> None:
        self._key_file_reads.labels(outcome="ok" if is_ok else "error").inc()

    def redis_failed(self) -> None:
        self._redis_failures.inc()

    def observe_ttft(self, seconds: float) -> None:
        self._ttft.observe(seconds)

    def observe_inter_token(self, seconds: float, *, num_tokens: int = 1) -> None:
        """A delta's gaps, as timing.StreamTimer.observe() gives them."""
        self._inter_token.observe(seconds, num_tokens)

    def count_tokens(self, *, prompt: int, cached: int, written: int, completion: int) -> None:
        self._prompt_tokens.inc(prompt)
        self._cached_tokens.inc(cached)
        self._written_tokens.inc(written)
        self._generated_tokens.inc(completion)

    def set_engine_source(self, read: ReadStats) -> None:
        """`read` is called at each scrape; None while the engine takes no requests. Call once."""
        self._registry.register(EngineCollector(read))

    def set_span_source(self, *, exported: Callable[[], int], dropped: Callable[[], int]) -> None:
        """Counts of a Tracing, read at each scrape. Call once."""
        self._registry.register(_SpanCollector(exported, dropped))

    def render(self) -> tuple[bytes, str]:
        """The exposition and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4


class _SpanCollector(Collector):
    def __init__(self, exported: Callable[[], int], dropped: Callable[[], int]) -> None:
        self._exported = exported
        self._dropped = dropped

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            names.METRIC_SPANS_EXPORTED, "Spans a collector accepted.", value=self._exported()
        )
        yield CounterMetricFamily(
            names.METRIC_SPANS_DROPPED,
            "Sampled spans that no collector will get.",
            value=self._dropped(),
        )


class _BoundedNames:
    """Lets a limited number of distinct label values through; the rest become one."""

    def __init__(self, max_names: int) -> None:
        self._max_names = max_names
        self._names: set[str] = set()
        self._lock = threading.Lock()

    def admit(self, name: str) -> str:
        with self._lock:
            if name in self._names:
                return name
            if len(self._names) >= self._max_names:
                return OTHER
            self._names.add(name)
            return name
