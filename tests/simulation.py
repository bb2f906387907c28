"""An engine in simulated time: an executor that computes nothing and takes what a cost model says.

Tests of the schedule run hours of load in seconds with it, and look at when each token came.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from prefix_cache import PrefixCache
from runtime.batch import SampledToken, SamplePlan, ScheduledBatch
from runtime.config import RuntimeConfig
from runtime.engine import Engine
from runtime.messages import Sampling, Submit, TokenEvent, TokenLogprob
from runtime.step_budget import StepShape
from tests.engine_harness import EOS, GATEWAY, PAGE_SIZE, StepClock, make_info

MS = 1_000_000
S = 1_000 * MS


@dataclass(frozen=True)
class StepCost:
    """How long a step takes: the sum of its parts, but at least `floor_ns`.

    `attend_ns` is paid for each token that a token attends to.
    """

    base_ns: float = 0.0
    row_ns: float = 0.0
    token_ns: float = 0.0
    attend_ns: float = 0.0
    floor_ns: float = 0.0

    def __call__(self, batch: ScheduledBatch) -> int:
        shape = StepShape.of(batch)
        decoded = sum(row.start for row in batch.rows if len(row.token_ids) == 1)
        parts_ns = (
            self.base_ns
            + self.row_ns * shape.num_decode_rows
            + self.token_ns * shape.num_prefill_tokens
            + self.attend_ns * (shape.prefill_context + decoded)
        )
        return round(max(self.floor_ns, parts_ns))


@dataclass(eq=False)
class TimedExecutor:
    """Moves the clock in `sample`. A choice ends after as many tokens as its seed says;
    0 = it never does."""

    clock: StepClock
    step_ns: Callable[[ScheduledBatch], int]
    num_tokens: int = 0
    page_io: None = None
    _batch: ScheduledBatch = field(default_factory=lambda: ScheduledBatch(0, ()))

    def forward(self, batch: ScheduledBatch) -> None:
        self._batch = batch

    def sample(self, plan: SamplePlan) -> tuple[SampledToken, ...]:
        self.clock.now_ns += self.step_ns(self._batch)
        self.num_tokens += self._batch.num_tokens
        return tuple(
            SampledToken(EOS if row.position + 1 == row.sampling.seed else 1) for row in plan.rows
        )

    def score(self) -> tuple[list[TokenLogprob], ...]:
        raise AssertionError("no simulation scores prompts")


@dataclass(eq=False)
class Record:
    """What became of one request."""

    submitted_ns: int
    admitted_ns: int | None = None
    token_ns: list[int] = field(default_factory=list)
    last: TokenEvent | None = None

    @property
    def first_token_after_ns(self) -> int:
        return self.token_ns[0] - self.submitted_ns

    def gaps_ns(self, start_ns: float = 0, end_ns: float = float("inf")) -> list[int]:
        """Times between tokens that came after `start_ns` and not after `end_ns`."""
        pairs = zip(self.token_ns, self.token_ns[1:], strict=False)
        return [late - early for early, late in pairs if start_ns < late <= end_ns]


class Simulation:
    """Requests come when they were said to; `records` is by request id."""

    def __init__(
        self,
        step_ns: Callable[[ScheduledBatch], int],
        *,
        num_pages: int = 20_000,
        max_model_len: int = 16_384,
        config: RuntimeConfig | None = None,
    ) -> None:
        self.clock = StepClock()
        self.records: dict[str, Record] = {}
        self.on_end: Callable[[str], None] = lambda _: None
        self.executor = TimedExecutor(self.clock, step_ns)
        self.cache = PrefixCache(num_pages=num_pages, page_size=PAGE_SIZE)
        self.engine = Engine(
            executor=self.executor,
            cache=self.cache,
            info=make_info(num_pages=num_pages, max_model_len=max_model_len),
            config=config or RuntimeConfig(model="simulated"),
            grammar=None,
            clock=self.clock,
        )
        self._arrivals: list[tuple[int, int, Submit]] = []
        self._start_ns = self.clock.now_ns

    @property
    def now_ns(self) -> int:
        """Since the start."""
        return self.clock.now_ns - self._start_ns

    def submit_at(self, at_ns: float, request: Submit) -> None:
        heapq.heappush(self._arrivals, (int(at_ns), len(self.records), request))
        self.records[request.request_id] = Record(int(at_ns))

    def submit(self, request: Submit) -> None:
        self.submit_at(self.now_ns, request)

    def run(self, until_ns: float = float("inf")) -> None:
        """Until nothing is left to do, or until then."""
        while self.now_ns < until_ns:
            self._deliver()
            if self.engine.has_work():
                self._step()
            elif self._arrivals:
                self.clock.now_ns = self._start_ns + self._arrivals[0][0]
            else:
                return

    def _deliver(self) -> None:
        while self._arrivals and self._arrivals[0][0] <= self.now_ns:
            self.engine.submit(GATEWAY, heapq.heappop(self._arrivals)[2])

    def _step(self) -> None:
        for event in self.engine.step().get(GATEWAY, ()):
            record = self.records[event.request_id]
            if event.admitted:
                record.admitted_ns = self.now_ns
            record.token_ns += [self.now_ns] * len(event.token_ids)
            if event.is_last:
                record.last = event
                self.on_end(event.request_id)


def make_request(
    request_id: str,
    *,
    num_prompt: int,
    num_output: int,
    max_tokens: int | None = None,
    shared: list[int] | None = None,
    tenant: str = "",
) -> Submit:
    """A prompt that begins with `shared` and has the rest to itself. With `max_tokens` the answer
    is `num_output` long nevertheless."""
    number = sum(byte * 31**index for index, byte in enumerate(request_id.encode()))
    own = [number // 90**digit % 90 for digit in range(8)]
    prompt = [*(shared or ()), *own, *(i % 90 for i in range(num_prompt))][:num_prompt]
    sampling = Sampling(
        max_tokens=max_tokens or num_output,
        seed=num_output if max_tokens else 0,
    )
    return Submit(request_id=request_id, prompt_token_ids=prompt, sampling=sampling, tenant=tenant)
