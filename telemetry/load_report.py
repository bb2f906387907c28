"""What a load of conversations came to, as lines for people and as JSON; no I/O."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from telemetry.answer_stream import Answer
from telemetry.cacheable import Exchange, cacheable_tokens
from telemetry.load import LoadSummary, summarize


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """One request: the turn of a user, and the answer or why there is none. Times are monotonic
    nanoseconds."""

    user: int
    turn: int
    start_ns: int
    end_ns: int
    answer: Answer | None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Figures of a whole load. Tokens are those of answered requests, as the server counts them.

    `cached_tokens` None = the server does not say. `cacheable_tokens` None = not known, as the
    server does not tell ids; `used_tokens` are those of them that came from the cache.
    """

    num_requests: int
    num_failed: int
    num_unsent: int
    first_failure: str | None
    wall_s: float
    summary: LoadSummary
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None
    cacheable_tokens: int | None
    used_tokens: int | None

    @property
    def hit_rate(self) -> float | None:
        """Cached tokens over prompt tokens."""
        return _ratio(self.cached_tokens, self.prompt_tokens)

    @property
    def used_share(self) -> float | None:
        """Of the tokens that could be cached, how many were."""
        return _ratio(self.used_tokens, self.cacheable_tokens)

    def lines(self) -> list[str]:
        """A line a figure."""
        one = self.summary
        outcome = f"{self.num_failed:,} failed, {self.num_unsent:,} not sent"
        return [
            f"requests   {self.num_requests:,} in {self.wall_s:.1f} s, {outcome}",
            f"TTFT       {_times(one.ttft_p50_ms, one.ttft_p95_ms, one.ttft_p99_ms)}",
            f"TPOT       {_times(one.tpot_p50_ms, one.tpot_p95_ms, one.tpot_p99_ms)}",
            f"output     {self.output_tokens:,} tokens, {one.output_tok_s:,.1f} tok/s",
            f"prompt     {self.prompt_tokens:,} tokens, {_cached_words(self)}",
            f"cacheable  {_cacheable_words(self)}",
        ]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "hit_rate": self.hit_rate, "used_share": self.used_share}


def make_report(turns: Sequence[PlayedTurn], *, wall_s: float, num_unsent: int) -> LoadReport:
    """Of all requests of a load that took `wall_s`; `num_unsent` turns were never sent."""
    answered = [(turn, turn.answer) for turn in turns if turn.answer is not None]
    answers = [answer for _, answer in answered]
    failures = [turn.failure for turn in turns if turn.failure is not None]
    cached = [answer.cached_tokens for answer in answers]
    known = [count for count in cached if count is not None]
    possible = _possible_tokens(answered)
    timings = [answer.timing for answer in answers if answer.timing is not None]
    return LoadReport(
        num_requests=len(turns),
        num_failed=len(failures),
        num_unsent=num_unsent,
        first_failure=failures[0] if failures else None,
        wall_s=wall_s,
        summary=summarize(timings, wall_s=wall_s),
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
        output_tokens=sum(answer.output_tokens for answer in answers),
        cached_tokens=sum(known) if known else None,
        cacheable_tokens=None if possible is None else sum(possible),
        used_tokens=None
        if possible is None or not known
        else sum(min(count or 0, bound) for count, bound in zip(cached, possible, strict=True)),
    )


def turn_json(turn: PlayedTurn) -> dict[str, Any]:
    """One request without its text and ids."""
    answer = turn.answer
    timing = None if answer is None else answer.timing
    return {
        "user": turn.user,
        "turn": turn.turn,
        "failure": turn.failure,
        "ttft_s": None if timing is None else timing.ttft_s,
        "tpot_s": None if timing is None else timing.tpot_s,
        "prompt_tokens": None if answer is None else answer.prompt_tokens,
        "cached_tokens": None if answer is None else answer.cached_tokens,
        "output_tokens": None if answer is None else answer.output_tokens,
    }


def _possible_tokens(answered: Sequence[tuple[PlayedTurn, Answer]]) -> list[int] | None:
    exchanges = [
        Exchange(turn.start_ns, turn.end_ns, answer.prompt_ids, answer.output_ids)
        for turn, answer in answered
        if answer.prompt_ids is not None
    ]
    if not exchanges or len(exchanges) < len(answered):
        return None
    return cacheable_tokens(exchanges)


def _times(p50: float | None, p95: float | None, p99: float | None) -> str:
    if p50 is None or p95 is None or p99 is None:
        return "no request has one"
    return f"p50 {p50:,.1f} ms, p95 {p95:,.1f} ms, p99 {p99:,.1f} ms"


def _cached_words(report: LoadReport) -> str:
    if report.hit_rate is None:
        return "how many were cached the server does not say"
    return f"{report.cached_tokens:,} of them cached: hit rate {report.hit_rate:.1%}"


def _cacheable_words(report: LoadReport) -> str:
    if report.cacheable_tokens is None:
        return "not known: the server does not tell token ids"
    if report.used_share is None:
        return f"{report.cacheable_tokens:,} tokens"
    return (
        f"{report.cacheable_tokens:,} tokens, {report.used_share:.2%} of them came from the cache"
    )


def _ratio(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None
