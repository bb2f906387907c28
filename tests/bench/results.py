"""What a run of the bench found: rows of every round, their medians, and ratios between servers."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace

from tests.bench.load_summary import LoadSummary

LoadKey = tuple[str, int]  # workload, number of clients


@dataclass(frozen=True, slots=True)
class LoadRow:
    """One load on one server, or the median over rounds of such rows, figure by figure.

    `client_cpu` and `other_cores` are in cores: what the client took, and all other work than the
    server's and the client's, where that is known.
    """

    server: str
    workload: str
    num_clients: int
    num_requests: int
    num_failed: int
    first_failure: str | None
    wall_s: float
    summary: LoadSummary
    valid_s: float | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    client_cpu: float
    other_cores: float | None = None

    @property
    def key(self) -> LoadKey:
        return self.workload, self.num_clients

    @property
    def throughput(self) -> float:
        """Valid answers a second where answers are checked, else output tokens a second: tokens
        would punish compact JSON."""
        return self.summary.output_tok_s if self.valid_s is None else self.valid_s


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a server: seconds to its first answer, and the most memory that it then took
    under the loads of `num_clients`."""

    server: str
    num_clients: int
    start_s: float
    peak_pss_bytes: int


@dataclass(frozen=True, slots=True)
class ColdAndWarm:
    """TTFT of prompts sent twice."""

    prompt_tokens: int
    cold_ms: tuple[float, ...]
    warm_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    """The product over another server on one load, the median over rounds; None where one of the
    two has no figure."""

    workload: str
    num_clients: int
    other: str
    throughput: float | None
    ttft_p50: float | None


@dataclass(eq=False, slots=True)
class Results:
    """Filled while the bench runs. `rounds` has one list of rows a round."""

    report_row: Callable[[LoadRow], None]
    rounds: list[list[LoadRow]] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    pairs: list[tuple[str, ColdAndWarm]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    def add_row(self, number: int, row: LoadRow) -> None:
        while len(self.rounds) <= number:
            self.rounds.append([])
        self.rounds[number].append(row)
        self.report_row(row)

    def medians(self) -> list[LoadRow]:
        """One row for each server and load, the servers side by side."""
        first = self.rounds[0] if self.rounds else []
        loads = list(dict.fromkeys(row.key for row in first))
        return [
            median_row([row for rows in self.rounds for row in rows if _is_same(row, one)])
            for one in sorted(first, key=lambda row: loads.index(row.key))
        ]

    def ratios(self, server: str) -> list[Ratio]:
        """`server` over each other one, round by round."""
        return [
            self._ratio(ours, other)
            for ours in (self.rounds[0] if self.rounds else [])
            if ours.server == server
            for other in self.rounds[0]
            if other.server != server and other.key == ours.key
        ]

    def _ratio(self, ours: LoadRow, other: LoadRow) -> Ratio:
        pairs = [
            (one, two)
            for rows in self.rounds
            for one in rows
            for two in rows
            if _is_same(one, ours) and _is_same(two, other)
        ]
        return Ratio(
            workload=ours.workload,
            num_clients=ours.num_clients,
            other=other.server,
            throughput=_median([_over(a.throughput, b.throughput) for a, b in pairs]),
            ttft_p50=_median(
                [_over(a.summary.ttft_p50_ms, b.summary.ttft_p50_ms) for a, b in pairs]
            ),
        )


def median_row(rows: Sequence[LoadRow]) -> LoadRow:
    """Failures are added up and not averaged away."""
    failures = [row.first_failure for row in rows if row.first_failure is not None]
    summaries = [row.summary for row in rows]
    values = [
        _median([getattr(one, entry.name) for one in summaries]) for entry in fields(LoadSummary)
    ]
    output_tok_s, *times = values
    assert output_tok_s is not None
    return replace(
        rows[0],
        num_failed=sum(row.num_failed for row in rows),
        first_failure=failures[0] if failures else None,
        wall_s=statistics.median(row.wall_s for row in rows),
        summary=LoadSummary(output_tok_s, *times),
        valid_s=_median([row.valid_s for row in rows]),
        prompt_tokens=round(statistics.median(row.prompt_tokens for row in rows)),
        output_tokens=round(statistics.median(row.output_tokens for row in rows)),
        cached_tokens=round(statistics.median(row.cached_tokens for row in rows)),
        client_cpu=statistics.median(row.client_cpu for row in rows),
        other_cores=_median([row.other_cores for row in rows]),
    )


def _is_same(row: LoadRow, other: LoadRow) -> bool:
    return row.server == other.server and row.key == other.key


def _median(values: Sequence[float | None]) -> float | None:
    """None where a round has no figure: a median of the others would hide it."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known and len(known) == len(values) else None


def _over(ours: float | None, other: float | None) -> float | None:
    return ours / other if ours is not None and other else None
