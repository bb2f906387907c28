"""The server's metrics, in a registry of their own; what they are is in catalog.py.

Labels are bounded: each has a fixed set of values, or a limited number of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from telemetry import catalog
from telemetry.bounded_names import BoundedNames
from telemetry.engine_collector import EngineCollector, EngineStatsLike, ReadStats
from telemetry.exposition import expose
from telemetry.families import family_of, make_counter, make_gauge, make_histogram
from telemetry.goodput import NO_LIMITS, Ended, Slo, judge
from telemetry.metric_definition import OTHER
from telemetry.phase_figures import PhaseFigures
from telemetry.prices import PriceTable
from telemetry.tenant_ledger import TenantLedger
from telemetry.token_histogram import TokenHistogram

__all__ = ["BuildInfo", "EngineStatsLike", "Metrics", "UsageLike"]

_ROUTES = frozenset(catalog.ROUTES)
Exemplar = dict[str, str] | None
Tier = Literal["device", "host", "disk", "redis"]


class UsageLike(Protocol):
    """What a request took; `gateway.generation.Usage` is one."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def written_tokens(self) -> int: ...
    @property
    def forced_tokens(self) -> int: ...
    @property
    def tier_tokens(self) -> Mapping[Tier, int]: ...


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """What is served, for the label of that name each."""

    version: str
    model: str
    dtype: str
    device: str


class Metrics:
    """One per server. All methods are thread-safe."""

    def __init__(self) -> None:
        # Creation times would double the number of series. The library has one switch for all.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=False)
        self._reasons = BoundedNames(catalog.MAX_REASONS)
        self._slo = NO_LIMITS
        self._make_request_metrics()
        self._make_latency_metrics()
        self._make_token_metrics()
        self._make_constraint_metrics()
        self._metric_exports = make_counter(catalog.METRIC_EXPORTS, self.registry)

    def _make_request_metrics(self) -> None:
        registry = self.registry
        self._requests = make_counter(catalog.REQUESTS, registry)
        self._in_flight = make_gauge(catalog.REQUESTS_IN_FLIGHT, registry)
        self._rejected = make_counter(catalog.REJECTED, registry)
        self._ignored = make_counter(catalog.IGNORED, registry)
        self._key_file_reads = make_counter(catalog.KEY_FILE_READS, registry)
        self._redis_failures = make_counter(catalog.REDIS_FAILURES, registry)
        self._goodput = make_counter(catalog.GOODPUT, registry)
        self._slo_seconds = make_gauge(catalog.SLO, registry)

    def _make_latency_metrics(self) -> None:
        registry = self.registry
        self._duration = make_histogram(catalog.REQUEST_DURATION, registry)
        self._ttft = make_histogram(catalog.TTFT, registry)
        self._tpot = make_histogram(catalog.TPOT, registry)
        self._inter_token = TokenHistogram(catalog.INTER_TOKEN)
        registry.register(self._inter_token)
        self._queue = make_histogram(catalog.QUEUE, registry)

    def _make_token_metrics(self) -> None:
        registry = self.registry
        self._prompt_tokens = make_counter(catalog.PROMPT_TOKENS, registry)
        self._cached_tokens = make_counter(catalog.CACHED_TOKENS, registry)
        self._tier_tokens = make_counter(catalog.CACHED_TOKENS_BY_TIER, registry)
        self._written_tokens = make_counter(catalog.CACHE_WRITTEN_TOKENS, registry)
        self._cache_misses = make_counter(catalog.CACHE_MISSES, registry)
        self._generated_tokens = make_counter(catalog.GENERATED_TOKENS, registry)
        self._forced_tokens = make_counter(catalog.FORCED_TOKENS, registry)
        self._ledger = TenantLedger()
        registry.register(self._ledger)

    def _make_constraint_metrics(self) -> None:
        registry = self.registry
        self._constraints = make_counter(catalog.CONSTRAINTS, registry)
        self._compile = make_histogram(catalog.GRAMMAR_COMPILE, registry)
        self._mask = make_histogram(catalog.MASK, registry)
        self._violations = make_counter(catalog.CONSTRAINT_VIOLATIONS, registry)
        self._retries = make_counter(catalog.CONSTRAINT_RETRIES, registry)
        self._retried_tokens = make_counter(catalog.RETRIED_TOKENS, registry)

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

    def request_started(self) -> None:
        """request_finished() is to follow, however it ends."""
        self._in_flight.inc()

    def request_finished(
        self,
        *,
        route: str,
        outcome: str,
        status: int,
        duration_s: float,
        exemplar: Exemplar = None,
    ) -> None:
        """`route` is the template; one that is not served counts as "other"."""
        known = route if route in _ROUTES else OTHER
        self._in_flight.dec()
        self._requests.labels(route=known, outcome=outcome, status=str(status)).inc()
        self._duration.labels(route=known).observe(duration_s, exemplar)

    def rejected(self, reason: str) -> None:
        self._rejected.labels(reason=self._reasons.admit(reason)).inc()

    def parameter_ignored(self, name: str) -> None:
        self._ignored.labels(name=name).inc()

    def key_file_read(self, is_ok: bool) -> None:
        self._key_file_reads.labels(outcome="ok" if is_ok else "error").inc()

    def redis_failed(self) -> None:
        self._redis_failures.inc()

    def metrics_exported(self, is_ok: bool) -> None:
        """These metrics were sent to a collector, which took them or not."""
        self._metric_exports.labels(outcome="ok" if is_ok else "error").inc()

    def observe_ttft(
        self, seconds: float, *, operation: str = "chat", exemplar: Exemplar = None
    ) -> None:
        """`exemplar` has the trace_id and span_id of a request whose trace is sampled."""
        known = catalog.OPERATION.admit(operation)
        self._ttft.labels(operation=known).observe(seconds, exemplar)

    def observe_tpot(
        self, seconds: float, *, operation: str = "chat", exemplar: Exemplar = None
    ) -> None:
        known = catalog.OPERATION.admit(operation)
        self._tpot.labels(operation=known).observe(seconds, exemplar)

    def observe_inter_token(
        self, seconds: float, *, num_tokens: int = 1, exemplar: Exemplar = None
    ) -> None:
        """A delta's gaps, as timing.StreamTimer.observe() gives them."""
        self._inter_token.observe(seconds, num_tokens, exemplar=exemplar)

    def observe_phases(self, figures: PhaseFigures, *, is_constrained: bool) -> None:
        """Of one request; without a constraint its masks, where it was measured, are none."""
        if figures.queue_s is not None:
            self._queue.observe(figures.queue_s)
        if is_constrained and figures.mask_s is not None:
            self._mask.observe(figures.mask_s)
        for reason in figures.misses:
            self._cache_misses.labels(reason=catalog.MISS_REASON.admit(reason)).inc()

    def count_usage(self, usage: UsageLike, *, tenant: str, model: str) -> None:
        """What one request took, whether it was answered or not. `model` is the served id, `tenant`
        a hash, "" where no keys are set."""
        self._prompt_tokens.inc(usage.prompt_tokens)
        self._cached_tokens.inc(usage.cached_tokens)
        self._written_tokens.inc(usage.written_tokens)
        self._generated_tokens.inc(usage.completion_tokens)
        self._forced_tokens.inc(usage.forced_tokens)
        num_lower = sum(usage.tier_tokens.values())
        self._tier_tokens.labels("device").inc(usage.cached_tokens - num_lower)
        for tier, num_tokens in usage.tier_tokens.items():
            self._tier_tokens.labels(tier).inc(num_tokens)
        self._ledger.add(
            tenant=tenant,
            model=model,
            prompt=usage.prompt_tokens,
            cached=usage.cached_tokens,
            completion=usage.completion_tokens,
        )

    def count_goodput(self, ended: Ended) -> None:
        """A request for an answer ended like this."""
        result = judge(ended, self._slo)
        if result is not None:
            self._goodput.labels(result=result).inc()

    def set_slo(self, slo: Slo) -> None:
        """The limits of goodput, from the first request on."""
        self._slo = slo
        for limit, seconds in (("ttft", slo.ttft_s), ("tpot", slo.tpot_s)):
            if seconds is not None:
                self._slo_seconds.labels(limit=limit).set(seconds)

    def set_prices(self, prices: PriceTable) -> None:
        """What tokens cost, from the first one on."""
        self._ledger.set_prices(prices)

    def set_engine_source(self, read: ReadStats) -> None:
        """`read` is called at each scrape; None while the engine takes no requests. Call once."""
        self.registry.register(EngineCollector(read))

    def set_build_source(self, read: Callable[[], BuildInfo | None]) -> None:
        """`read` is called at each scrape; None as long as it is not known. Call once."""
        self.registry.register(_Read(lambda: [_build_info(read())]))

    def set_span_source(self, *, exported: Callable[[], int], dropped: Callable[[], int]) -> None:
        """Counts of a Tracing, read at each scrape. Call once."""
        self.registry.register(
            _Read(
                lambda: [
                    family_of(catalog.SPANS_EXPORTED, {(): exported()}),
                    family_of(catalog.SPANS_DROPPED, {(): dropped()}),
                ]
            )
        )

    def render(self, accept: str = "", *, with_tenants: bool = True) -> tuple[bytes, str]:
        """The exposition that a client asks for with this header, and its content type."""
        return expose(self.registry if with_tenants else _WithoutTenants(self.registry), accept)


class _WithoutTenants(Collector):
    """A registry without what is told of each tenant."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            if "tenant" not in catalog.BY_NAME[family.name].label_names:
                yield family


class _Read(Collector):
    """Families that are made when they are asked for."""

    def __init__(self, read: Callable[[], Sequence[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        yield from self._read()

    def describe(self) -> Iterator[Metric]:
        """Nothing is read when the collector is registered."""
        return iter(())


def _build_info(info: BuildInfo | None) -> Metric:
    if info is None:
        return family_of(catalog.BUILD_INFO, {})
    return family_of(catalog.BUILD_INFO, {(info.version, info.model, info.dtype, info.device): 1.0})
