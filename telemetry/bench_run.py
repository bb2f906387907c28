"""What a run of `radixgate bench` found, as frozen data: no I/O, and nothing that follows from it.

`gateway.bench_command` fills it; `telemetry.bench_figures` computes from it, and the reports render
both. Times of requests are seconds from the start of what was measured in their round: what warmed
the server up came before 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Arrival(StrEnum):
    """What decides when the next request is sent."""

    CLOSED = "closed"  # the end of an answer: so many clients, each with one request at a time
    POISSON = "poisson"  # a random process of a rate, whatever the server does
    TRACE = "trace"  # the times of a file


class FailureKind(StrEnum):
    STATUS = "status"  # another one than 200
    TIMEOUT = "timeout"
    CONNECTION = "connection"  # not made, or lost before the answer began
    BROKEN_STREAM = "broken_stream"  # lost, ended early, or no events of the API
    ERROR_EVENT = "error_event"  # the stream itself reports an error
    TOO_LARGE = "too_large"  # larger or longer than any answer is


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request has no answer. `status` is there for that kind; `text` is one line, which may
    hold whatever the server said."""

    kind: FailureKind
    text: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request. Of one that failed the times are those until then, and there are no counts.

    `scheduled_s` is when the arrivals wanted it sent, `start_s` when it was. TTFT, TPOT and the
    gaps of `itl_s` (one a token after the first) are those of telemetry.load. `cached_tokens` and
    `reasoning_tokens` None = the server does not say; `cacheable_tokens` None = it does not tell
    token ids. `is_valid` None = no schema was asked for.
    """

    user: int
    turn: int
    is_warm_up: bool
    scheduled_s: float
    start_s: float
    end_s: float
    ttft_s: float | None = None
    tpot_s: float | None = None
    itl_s: tuple[float, ...] = ()
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None
    cacheable_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str | None = None
    is_valid: bool | None = None
    failure: Failure | None = None

    @property
    def e2e_s(self) -> float:
        """From the start to the end of the answer."""
        return self.end_s - self.start_s

    @property
    def late_s(self) -> float:
        """How much later than scheduled it was sent."""
        return max(0.0, self.start_s - self.scheduled_s)


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """One point of a sweep: clients of a closed loop, requests a second, or a trace's speed."""

    arrival: Arrival
    concurrency: int | None = None
    rate: float | None = None
    speed: float | None = None

    @property
    def value(self) -> float:
        """The place on an axis."""
        return float(self.concurrency or self.rate or self.speed or 0.0)

    @property
    def text(self) -> str:
        if self.concurrency is not None:
            return f"{self.concurrency} client" + "s" * (self.concurrency != 1)
        if self.rate is not None:
            return f"{self.rate:g} requests/s"
        return f"trace at {self.speed or 1.0:g} times its speed"


@dataclass(frozen=True, slots=True)
class Round:
    """One load, played once on one server. `wall_s` is from the start of what was measured to the
    last answer's end; `num_unsent` are requests that were planned and never sent; `client_cpu_s`
    is the processor time that the bench itself took meanwhile."""

    number: int
    started_s: float  # since the run began
    wall_s: float
    records: tuple[RequestRecord, ...]
    num_unsent: int = 0
    client_cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Series:
    """All rounds of one load level on one server. `notes` say what one should know of it: fields
    that the server refused, requests that were late."""

    label: str
    url: str
    model: str
    level: LoadLevel
    rounds: tuple[Round, ...]
    notes: tuple[str, ...] = ()

    @property
    def wall_s(self) -> float:
        return sum(one.wall_s for one in self.rounds)

    @property
    def num_unsent(self) -> int:
        return sum(one.num_unsent for one in self.rounds)

    @property
    def client_cpu_s(self) -> float:
        return sum(one.client_cpu_s for one in self.rounds)

    def measured(self) -> Iterator[RequestRecord]:
        """Of all rounds, without what warmed up."""
        return (one for each in self.rounds for one in each.records if not one.is_warm_up)


@dataclass(frozen=True, slots=True)
class Slo:
    """What a request must keep to count as good; None = no limit."""

    max_ttft_s: float | None = None
    max_tpot_s: float | None = None
    max_e2e_s: float | None = None

    @property
    def text(self) -> str:
        """As `--slo` takes it."""
        limits = {"ttft": self.max_ttft_s, "tpot": self.max_tpot_s, "e2e": self.max_e2e_s}
        return ",".join(f"{name}={s * 1e3:g}ms" for name, s in limits.items() if s is not None)

    def is_kept_by(self, record: RequestRecord) -> bool:
        """Not by a request that failed, nor by one without a token. A TPOT that an answer of one
        token does not have keeps its limit."""
        if record.failure is not None or record.ttft_s is None:
            return False
        found = (record.ttft_s, record.tpot_s or 0.0, record.e2e_s)
        limits = (self.max_ttft_s, self.max_tpot_s, self.max_e2e_s)
        return all(
            limit is None or value <= limit for value, limit in zip(found, limits, strict=True)
        )


@dataclass(frozen=True, slots=True)
class WorkloadNote:
    """`description` is one line with the sizes; `source` a file's name, None for a named one."""

    name: str
    description: str
    endpoint: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class ClientMachine:
    """Where the bench itself ran."""

    processor: str
    num_cpus: int
    system: str
    python: str
    event_loop: str


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One run: its series in the order of levels, and of servers within each; the first server is
    what the others are compared with. `started_at` is ISO 8601 in UTC; `command` the flags as they
    were given; `warm_up` the requests before each round. `is_interrupted`: it was ended by hand,
    and the last round is a part of one."""

    started_at: str
    version: str
    command: str
    machine: ClientMachine
    workload: WorkloadNote
    seed: int
    arrival: Arrival
    warm_up: int
    num_rounds: int
    series: tuple[Series, ...]
    slo: Slo | None = None
    price_per_hour: float | None = None
    is_interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands, for who watches it; told a few times a second.

    `total` None = the round ends with its duration, of which `share` is the part that is over.
    """

    label: str
    level: LoadLevel
    round_number: int
    num_rounds: int
    is_warm_up: bool
    num_done: int
    num_failed: int
    num_in_flight: int
    total: int | None
    elapsed_s: float
    share: float
