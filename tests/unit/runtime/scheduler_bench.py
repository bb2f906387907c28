"""A scheduler without an engine, for its unit tests."""

from prefix_cache import PrefixCache
from runtime.counters import Counters
from runtime.request import Sequence
from runtime.schedule import Schedule
from runtime.scheduler import Scheduler, SchedulerLimits
from runtime.step_budget import PrefillAllowance, StepBudget, StepShape
from tests.engine_harness import PAGE_SIZE, StepClock, make_sequence

OVERTAKING_NS = 10**9


class GenerousBudget(StepBudget):
    """Leaves to prefill what the decode rows do not take of the tokens."""

    def allow(self, *, num_decode_rows: int, num_prompts: int) -> PrefillAllowance:
        return super().allow(num_decode_rows=min(0, num_decode_rows), num_prompts=num_prompts)

    def observe(self, shape: StepShape, elapsed_ns: int) -> None:
        self.last_shape = shape
        super().observe(shape, elapsed_ns)


class Bench:
    """A scheduler whose steps always succeed; every sampled token is 90."""

    def __init__(
        self,
        *,
        num_pages: int = 64,
        budget: int = 32,
        max_running: int = 8,
        watermark: int = 0,
        step_budget: StepBudget | None = None,
    ) -> None:
        self.cache = PrefixCache(num_pages=num_pages, page_size=PAGE_SIZE)
        self.counters = Counters()
        self.budget = GenerousBudget(budget)
        self.clock = StepClock()
        limits = SchedulerLimits(PAGE_SIZE, max_running, budget, watermark, 4_096, OVERTAKING_NS)
        self.scheduler = Scheduler(
            self.cache,
            limits,
            step_budget=step_budget or self.budget,
            counters=self.counters,
            clock=self.clock,
        )

    def add(
        self, num_tokens: int, *, key: int, use_cache: bool = True, tenant: str = ""
    ) -> Sequence:
        """A prompt that shares no page with another key's."""
        prompt = [key, *range(num_tokens - 1)]
        sequence = make_sequence(prompt, key=key, use_cache=use_cache, tenant=tenant)
        self.scheduler.add(sequence)
        return sequence

    def run_once(self, num_tokens: int, *, key: int) -> Sequence:
        sequence = self.add(num_tokens, key=key)
        self.step()
        return sequence

    def expect_short_answers(self) -> None:
        """An answer of one token: longer ones are a surprise then."""
        sequence = self.add(2, key=99, use_cache=False)
        self.step()
        self.scheduler.end(sequence)

    def step(self) -> Schedule:
        schedule = self.scheduler.schedule()
        self.scheduler.advance(schedule, elapsed_ns=1)
        for sequence in schedule.sampled:
            sequence.token_ids.append(90)
        self.cache.check_invariants()
        return schedule


def shares(schedule: Schedule) -> list[tuple[int, int]]:
    return [(row.key, len(row.token_ids)) for row in schedule.batch.rows]
