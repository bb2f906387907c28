"""Figures of a bench run: computed from its records only, by the definitions of telemetry.load.

Latencies and tokens are those of answered requests that were measured; shares of good requests are
of all that were sent.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from telemetry.bench_run import (
    BenchRun,
    FailureKind,
    LoadLevel,
    RequestRecord,
    Series,
    Slo,
)
from telemetry.load import nearest_rank, percentile

_MILLION = 1e6
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Distribution:
    """Seconds. Percentiles are values that were measured (telemetry.load.percentile)."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class SeriesFigures:
    """None where no request has what a figure is made of, or nobody asked for it.

    `user_tok_s_p50` is the median over requests of 1 / TPOT: what one user sees come. `hit_rate` is
    cached over prompt tokens, `used_share` the part that came from the cache of what could have.
    `goodput_share` is of all requests that were sent; `valid_share` of the answers that had to fit
    a schema. Costs are per million tokens, in the currency of the price per hour.
    """

    num_requests: int
    num_answered: int
    errors: Mapping[FailureKind, int]
    wall_s: float
    ttft: Distribution | None
    itl: Distribution | None
    tpot: Distribution | None
    e2e: Distribution | None
    late: Distribution | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None
    cacheable_tokens: int | None
    reasoning_tokens: int | None
    output_tok_s: float
    total_tok_s: float
    requests_per_s: float
    user_tok_s_p50: float | None
    goodput_share: float | None
    goodput_per_s: float | None
    hit_rate: float | None
    used_share: float | None
    valid_share: float | None
    output_cost: float | None
    total_cost: float | None
    client_cpu_share: float

    @property
    def num_failed(self) -> int:
        return self.num_requests - self.num_answered


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure over that of the first server at the same level. `low` and `high` are the smallest
    and largest ratio of two rounds of the same number: what lies between them is no difference."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One series beside the first server's at the same level, by the names of `compared`."""

    label: str
    baseline: str
    level: LoadLevel
    ratios: Mapping[str, Ratio]


def figures_of(
    series: Series, *, slo: Slo | None = None, price_per_hour: float | None = None
) -> SeriesFigures:
    """Of all rounds together."""
    records = list(series.measured())
    answered = [one for one in records if one.failure is None]
    wall_s = series.wall_s
    output_tokens = sum(one.output_tokens for one in answered)
    total_tokens = output_tokens + sum(one.prompt_tokens for one in answered)
    num_good = None if slo is None else sum(map(slo.is_kept_by, records))
    tpots = [one.tpot_s for one in answered if one.tpot_s is not None]
    price = None if price_per_hour is None else price_per_hour * wall_s / _HOUR_S
    cacheable = _sum_if_all(one.cacheable_tokens for one in answered)
    return SeriesFigures(
        num_requests=len(records),
        num_answered=len(answered),
        errors=dict(Counter(one.failure.kind for one in records if one.failure is not None)),
        wall_s=wall_s,
        ttft=distribution([one.ttft_s for one in answered if one.ttft_s is not None]),
        itl=distribution([gap for one in answered for gap in one.itl_s]),
        tpot=distribution(tpots),
        e2e=distribution([one.e2e_s for one in answered]),
        late=distribution([one.late_s for one in records]),
        prompt_tokens=total_tokens - output_tokens,
        output_tokens=output_tokens,
        cached_tokens=_sum_known(one.cached_tokens for one in answered),
        cacheable_tokens=cacheable,
        reasoning_tokens=_sum_known(one.reasoning_tokens for one in answered),
        output_tok_s=_per(output_tokens, wall_s),
        total_tok_s=_per(total_tokens, wall_s),
        requests_per_s=_per(len(answered), wall_s),
        user_tok_s_p50=percentile([1 / tpot for tpot in tpots if tpot > 0], 0.5),
        goodput_share=_ratio(num_good, len(records)),
        goodput_per_s=None if num_good is None else _per(num_good, wall_s),
        hit_rate=_ratio(
            _sum_known(one.cached_tokens for one in answered), total_tokens - output_tokens
        ),
        used_share=_ratio(_used_tokens(answered), cacheable),
        valid_share=_valid_share(answered),
        output_cost=_cost(price, output_tokens),
        total_cost=_cost(price, total_tokens),
        client_cpu_share=_per(series.client_cpu_s, wall_s),
    )


def distribution(seconds: Sequence[float]) -> Distribution | None:
    """None without values."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    p50, p90, p95, p99 = (nearest_rank(ordered, share) for share in (0.5, 0.9, 0.95, 0.99))
    mean = sum(ordered) / len(ordered)
    return Distribution(len(ordered), mean, p50, p90, p95, p99, ordered[-1])


def compare(run: BenchRun) -> tuple[Comparison, ...]:
    """Each series with that of the run's first server at its level, which itself is left out."""
    found = []
    first: dict[LoadLevel, Series] = {}
    for series in run.series:
        baseline = first.setdefault(series.level, series)
        if baseline is series:
            continue
        whole = _ratios(series, baseline, run.slo)
        pairs = zip(series.rounds, baseline.rounds, strict=False)
        rounds = [
            _ratios(replace(series, rounds=(ours,)), replace(baseline, rounds=(theirs,)), run.slo)
            for ours, theirs in pairs
        ]
        ratios = {name: _spread(name, value, rounds) for name, value in whole.items()}
        found.append(Comparison(series.label, baseline.label, series.level, ratios))
    return tuple(found)


def compared(figures: SeriesFigures) -> dict[str, float | None]:
    """What ratios are made of, by name."""
    return {
        "output_tok_s": figures.output_tok_s,
        "total_tok_s": figures.total_tok_s,
        "requests_per_s": figures.requests_per_s,
        "ttft_p50": figures.ttft.p50 if figures.ttft else None,
        "ttft_p95": figures.ttft.p95 if figures.ttft else None,
        "tpot_p50": figures.tpot.p50 if figures.tpot else None,
        "tpot_p95": figures.tpot.p95 if figures.tpot else None,
        "itl_p99": figures.itl.p99 if figures.itl else None,
        "e2e_p50": figures.e2e.p50 if figures.e2e else None,
        "goodput_per_s": figures.goodput_per_s,
    }


def _ratios(ours: Series, theirs: Series, slo: Slo | None) -> dict[str, float]:
    """Without those where either has none, or nothing can be divided by."""
    base = compared(figures_of(theirs, slo=slo))
    found = compared(figures_of(ours, slo=slo))
    pairs = {name: (value, base[name]) for name, value in found.items()}
    return {name: a / b for name, (a, b) in pairs.items() if a is not None and b}


def _spread(name: str, value: float, rounds: Sequence[Mapping[str, float]]) -> Ratio:
    found = [one[name] for one in rounds if name in one] or [value]
    return Ratio(value, min(found), max(found))


def _used_tokens(answered: Sequence[RequestRecord]) -> int | None:
    """Tokens from the cache, of each request no more than could have been there: what other
    traffic left makes up for nothing. None where nothing is said of caching."""
    if all(one.cached_tokens is None for one in answered):
        return None
    return sum(min(one.cached_tokens or 0, one.cacheable_tokens or 0) for one in answered)


def _valid_share(answered: Sequence[RequestRecord]) -> float | None:
    judged = [one.is_valid for one in answered if one.is_valid is not None]
    return _ratio(sum(judged), len(judged))


def _sum_known(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _sum_if_all(counts: Iterable[int | None]) -> int | None:
    found = list(counts)
    known = [count for count in found if count is not None]
    return sum(known) if known and len(known) == len(found) else None


def _cost(price: float | None, num_tokens: int) -> float | None:
    return None if price is None or not num_tokens else price / num_tokens * _MILLION


def _per(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0


def _ratio(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None
