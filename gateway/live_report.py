"""What /ui/data says, made of what the gateway and the engine know at that moment."""

from collections.abc import Mapping, Sequence

import msgspec

from gateway.cache_texts import time_of
from gateway.live_requests import ErrorRecord, LiveRequests, OpenPhase, RequestRecord
from gateway.minute_window import MinuteFigures
from gateway.registry import ModelRegistry
from gateway.schemas.cache_response import TierState
from gateway.schemas.live_response import (
    ErrorShown,
    LiveState,
    NowShown,
    PagesShown,
    PhaseShown,
    RequestShown,
    ServerShown,
    State,
    Value,
)
from runtime.cache_messages import TierUse
from runtime.messages import EngineStats
from runtime.token_engine import EngineState, TokenEngine
from telemetry import names
from telemetry.phases import PhaseLike

# Of requests under way; a poll is a few hundred kilobytes at the most.
MAX_REQUESTS = 100
_MAX_TEXT_LEN = 80
_PREFIX = "radixgate."
# Says something of the client's own schema.
_HIDDEN = frozenset({names.ATTR_CONSTRAINT_POINTER})
_MS = 1e3
_NS_PER_MS = 1e6
_NS = 1e9


class LiveReport:
    """Reads; the event loop's thread calls it."""

    def __init__(
        self, live: LiveRequests, *, engine: TokenEngine, models: ModelRegistry, version: str
    ) -> None:
        self._live = live
        self._engine = engine
        self._models = models
        self._version = version

    def state(self, *, since: int) -> LiveState:
        """With the finished requests and errors whose number is above `since`."""
        live, now_ns = self._live, self._live.now_ns()
        stats = self._engine.stats if self._engine.state is EngineState.READY else None
        under_way = live.under_way(MAX_REQUESTS)
        return LiveState(
            server=self._server(now_ns),
            now=_now(live.figures(), stats, num_under_way=live.num_under_way),
            pages=None if stats is None else self._pages(stats),
            tiers=() if stats is None else [_tier(tier) for tier in stats.tiers],
            requests=[_request(record, now_ns=now_ns) for record in under_way],
            left_out=live.num_under_way - len(under_way),
            finished=[_request(one, now_ns=now_ns) for one in live.finished_since(since)],
            errors=[_error(error) for error in live.errors_since(since)],
            latest=live.latest,
        )

    def _server(self, now_ns: int) -> ServerShown:
        engine, start_ns = self._engine, self._live.start_ns
        shown = ServerShown(
            version=self._version,
            started_at=_moment(start_ns),
            uptime_s=max(0, now_ns - start_ns) / _NS,
            models=self._models.names,
            engine=engine.state.value,
        )
        info = engine.info
        if info is None:
            return shown
        return msgspec.structs.replace(
            shown,
            incarnation=info.incarnation,
            architecture=info.architecture,
            dtype=info.dtype,
            device=info.device,
            max_model_len=info.max_model_len,
        )

    def _pages(self, stats: EngineStats) -> PagesShown:
        info = self._engine.info
        return PagesShown(
            total=stats.pages_total,
            free=stats.pages_free,
            cached=stats.pages_cached,
            held=stats.pages_held,
            locked=stats.pages_locked,
            pinned=stats.pages_pinned,
            page_bytes=0 if info is None else info.page_bytes,
        )


def _now(figures: MinuteFigures, stats: EngineStats | None, *, num_under_way: int) -> NowShown:
    return NowShown(
        in_flight=num_under_way,
        running=None if stats is None else stats.num_running,
        queued=None if stats is None else stats.num_waiting,
        window_s=figures.window_s,
        requests=figures.num_requests,
        ttft_p50_ms=_in_ms(figures.ttft_p50_s),
        ttft_p95_ms=_in_ms(figures.ttft_p95_s),
        tpot_p50_ms=_in_ms(figures.tpot_p50_s),
        tpot_p95_ms=_in_ms(figures.tpot_p95_s),
        output_tok_s=figures.output_tok_s,
        tokens_by_second=figures.tokens_by_second,
        prompt_tokens=figures.prompt_tokens,
        cached_tokens=figures.cached_tokens,
        hit_rate=figures.hit_rate,
    )


def _tier(tier: TierUse) -> TierState:
    return TierState(
        tier.name,
        tier.is_up,
        tier.max_bytes,
        pages=tier.num_pages,
        bytes=tier.num_bytes,
        found=tier.num_found,
        missing=tier.num_missing,
        fetched=tier.num_fetched,
        stored=tier.num_stored,
        failures=tier.num_failures,
    )


def _request(record: RequestRecord, *, now_ns: int) -> RequestShown:
    usage, start_ns = record.usage, record.start_ns
    end_ns = now_ns if record.end_ns is None else record.end_ns
    return RequestShown(
        number=record.number,
        id=record.request_id,
        trace_id=record.trace_id,
        tenant=record.tenant,
        route=record.route,
        model=record.model,
        state=_state(record),
        choices=record.num_choices,
        started_at=_moment(start_ns),
        duration_ms=max(0, end_ns - start_ns) / _NS_PER_MS,
        status=record.status,
        error=record.error,
        finish_reasons=record.finish_reasons,
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        cached_tokens=_cached(record.phases) if usage is None else usage.cached_tokens,
        output_tokens=record.num_output_tokens,
        ttft_ms=_in_ms(record.ttft_s),
        tpot_ms=_in_ms(record.tpot_s),
        phases=_phases(record.phases, record.open_phase, start_ns=start_ns),
    )


def _state(record: RequestRecord) -> State:
    return record.stage if record.outcome is None else record.outcome


def _cached(phases: Sequence[PhaseLike]) -> int | None:
    """What the first match found, of a request whose usage is not known yet."""
    for phase in phases:
        if phase.name == names.SPAN_CACHE_MATCH:
            return int(phase.attributes.get(names.ATTR_CACHED_TOKENS, 0))
    return None


def _phases(
    phases: Sequence[PhaseLike], open_phase: OpenPhase | None, *, start_ns: int
) -> list[PhaseShown]:
    shown = [
        PhaseShown(
            phase.name,
            (phase.start_ns - start_ns) / _NS_PER_MS,
            (phase.end_ns - start_ns) / _NS_PER_MS,
            _attributes(phase.attributes),
        )
        for phase in sorted(phases, key=lambda phase: phase.start_ns)
    ]
    if open_phase is not None:
        start_ms = (open_phase.start_ns - start_ns) / _NS_PER_MS
        shown.append(PhaseShown(open_phase.name, start_ms, None))
    return shown


def _attributes(attributes: Mapping[str, Value]) -> dict[str, Value]:
    """Our own, under short names."""
    return {
        name.removeprefix(_PREFIX): value[:_MAX_TEXT_LEN] if isinstance(value, str) else value
        for name, value in attributes.items()
        if name.startswith(_PREFIX) and name not in _HIDDEN
    }


def _error(error: ErrorRecord) -> ErrorShown:
    return ErrorShown(
        number=error.number,
        at=_moment(error.at_ns),
        request_id=error.request_id,
        trace_id=error.trace_id,
        route=error.route,
        status=error.status,
        code=error.code,
    )


def _moment(wall_ns: int) -> str:
    return time_of(wall_ns) or ""


def _in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * _MS
