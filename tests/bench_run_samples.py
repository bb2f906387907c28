"""Bench runs for the tests of their reports: one by hand, and any that a file may hold."""

from typing import TypeVar

from hypothesis import strategies as st

from telemetry.bench_run import (
    Arrival,
    BenchRun,
    ClientMachine,
    Failure,
    FailureKind,
    LoadLevel,
    RequestRecord,
    Round,
    Series,
    Slo,
    WorkloadNote,
)

Value = TypeVar("Value")
BUSY = Failure(FailureKind.STATUS, "busy", 503)


def record(
    start_s: float = 0.0,
    *,
    ttft_s: float = 0.1,
    gap_s: float = 0.02,
    tokens: int = 5,
    cached_tokens: int | None = 16,
    finish_reason: str | None = "length",
    is_valid: bool | None = None,
    late_s: float = 0.0,
    is_warm_up: bool = False,
) -> RequestRecord:
    """An answer of so many tokens at an even pace to a prompt of 40."""
    return RequestRecord(
        user=0,
        turn=0,
        is_warm_up=is_warm_up,
        scheduled_s=start_s - late_s,
        start_s=start_s,
        end_s=start_s + ttft_s + gap_s * (tokens - 1),
        ttft_s=ttft_s,
        tpot_s=gap_s,
        itl_s=(gap_s,) * (tokens - 1),
        prompt_tokens=40,
        output_tokens=tokens,
        cached_tokens=cached_tokens,
        finish_reason=finish_reason,
        is_valid=is_valid,
    )


def failed(start_s: float = 0.0, failure: Failure = BUSY) -> RequestRecord:
    return RequestRecord(0, 0, False, start_s, start_s, start_s + 0.1, failure=failure)


def series(
    *records: RequestRecord,
    label: str = "ours",
    clients: int = 1,
    wall_s: float = 2.0,
    client_cpu_s: float = 0.1,
    num_unsent: int = 0,
) -> Series:
    """One round on one server."""
    one = Round(1, 0.0, wall_s, records, num_unsent=num_unsent, client_cpu_s=client_cpu_s)
    level = LoadLevel(Arrival.CLOSED, concurrency=clients)
    return Series(label, f"http://{label}/v1", "tiny", level, (one,))


def run_of(*found: Series, slo: Slo | None = None, price_per_hour: float | None = None) -> BenchRun:
    return BenchRun(
        started_at="2026-11-30T10:00:00Z",
        version="0.1.0",
        command="radixgate bench --workload chat",
        machine=ClientMachine("a processor", 2, "Linux", "3.11.9", "uvloop"),
        workload=WorkloadNote("chat", "prompts of 40 tokens", "chat"),
        seed=1,
        arrival=Arrival.CLOSED,
        warm_up=2,
        num_rounds=1,
        series=found,
        slo=slo,
        price_per_hour=price_per_hour,
    )


def two_servers_at_two_loads() -> BenchRun:
    """The second server takes twice the time; one of its requests failed."""
    found = []
    for clients in (1, 4):
        ours = [record(at, ttft_s=0.1 * clients) for at in range(3)]
        theirs = [record(at, ttft_s=0.2 * clients, gap_s=0.04) for at in range(3)]
        found.append(series(*ours, clients=clients))
        found.append(series(*theirs, failed(3.0), label="theirs", clients=clients, wall_s=4.0))
    return run_of(*found, slo=Slo(max_ttft_s=0.25), price_per_hour=3.6)


_TEXTS = st.text(max_size=12) | st.sampled_from(["</svg><script>", "a|b`c``d", "\x1b[2J", "]]>&"])
_SECONDS = st.floats(0, 1e6) | st.sampled_from([0.0, 1e-12, 999_999_999.0])
_COUNTS = st.integers(0, 1 << 53)


def _maybe(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Value | None]:
    return st.none() | values


def records() -> st.SearchStrategy[RequestRecord]:
    return st.builds(
        RequestRecord,
        user=st.integers(0, 9),
        turn=st.integers(0, 9),
        is_warm_up=st.booleans(),
        scheduled_s=_SECONDS,
        start_s=_SECONDS,
        end_s=_SECONDS,
        ttft_s=_maybe(_SECONDS),
        tpot_s=_maybe(_SECONDS),
        itl_s=st.lists(_SECONDS, max_size=4).map(tuple),
        prompt_tokens=_COUNTS,
        output_tokens=_COUNTS,
        cached_tokens=_maybe(_COUNTS),
        cacheable_tokens=_maybe(_COUNTS),
        reasoning_tokens=_maybe(_COUNTS),
        finish_reason=_maybe(_TEXTS),
        is_valid=_maybe(st.booleans()),
        failure=_maybe(st.builds(Failure, st.sampled_from(FailureKind), _TEXTS)),
    )


def _rounds() -> st.SearchStrategy[tuple[Round, ...]]:
    one = st.builds(
        Round,
        number=st.integers(1, 3),
        started_s=_SECONDS,
        wall_s=_SECONDS,
        records=st.lists(records(), max_size=5).map(tuple),
        num_unsent=st.integers(0, 9),
        client_cpu_s=_SECONDS,
    )
    return st.lists(one, max_size=2).map(tuple)


def _levels() -> st.SearchStrategy[LoadLevel]:
    closed = st.builds(LoadLevel, st.just(Arrival.CLOSED), concurrency=st.integers(1, 4))
    poisson = st.builds(LoadLevel, st.just(Arrival.POISSON), rate=st.floats(1e-3, 1e4))
    return closed | poisson | st.just(LoadLevel(Arrival.TRACE, speed=2.0))


def runs() -> st.SearchStrategy[BenchRun]:
    """Also such as no bench would make: no series, no rounds, all failed, zeros, huge numbers."""
    one = st.builds(
        Series,
        label=_TEXTS,
        url=_TEXTS,
        model=_TEXTS,
        level=_levels(),
        rounds=_rounds(),
        notes=st.lists(_TEXTS, max_size=2).map(tuple),
    )
    limits = _maybe(_SECONDS)
    return st.builds(
        BenchRun,
        started_at=_TEXTS,
        version=_TEXTS,
        command=_TEXTS,
        machine=st.builds(ClientMachine, _TEXTS, st.integers(1, 64), _TEXTS, _TEXTS, _TEXTS),
        workload=st.builds(WorkloadNote, _TEXTS, _TEXTS, _TEXTS, _maybe(_TEXTS)),
        seed=st.integers(-9, 9),
        arrival=st.sampled_from(Arrival),
        warm_up=st.integers(0, 9),
        num_rounds=st.integers(0, 9),
        series=st.lists(one, max_size=4).map(tuple),
        slo=_maybe(st.builds(Slo, limits, limits, limits)),
        price_per_hour=_maybe(st.floats(0, 1e6)),
        is_interrupted=st.booleans(),
    )
