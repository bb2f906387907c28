"""Python time of one engine step over an executor that computes nothing: scheduling, events, wire.

Run as `python -m tests.bench.step_overhead`; prints microseconds a step for decode rows of a few
batch sizes, and for a full house in front of a long queue. CPU time of the thread, best of several
rounds, as a shared machine only ever adds time.
"""

import argparse
import time

from prefix_cache import PrefixCache
from runtime import wire
from runtime.batch import SampledToken, SamplePlan, ScheduledBatch
from runtime.config import RuntimeConfig
from runtime.engine import Engine
from runtime.messages import Sampling, StepOutput, TokenLogprob
from tests.engine_harness import GATEWAY, make_info, make_submit

STEPS_A_ROUND = 200
NUM_PAGES = 40_000


class NullExecutor:
    """Samples token 1 for every row."""

    page_io = None

    def forward(self, batch: ScheduledBatch) -> None:
        pass

    def sample(self, plan: SamplePlan) -> tuple[SampledToken, ...]:
        return (SampledToken(1),) * len(plan.rows)

    def score(self) -> tuple[list[TokenLogprob], ...]:
        return ()


def make_engine(*, max_running: int) -> Engine:
    return Engine(
        executor=NullExecutor(),
        cache=PrefixCache(num_pages=NUM_PAGES),
        info=make_info(num_pages=NUM_PAGES, max_model_len=100_000),
        config=RuntimeConfig(model="null", max_running=max_running, max_step_tokens=8_192),
        grammar=None,
    )


def submit(engine: Engine, number: int, *, num_tokens: int, num_shared: int = 0) -> None:
    own = [number // 90, number % 90, *(i % 90 for i in range(num_tokens - num_shared - 2))]
    prompt = [*(i % 90 for i in range(num_shared)), *own]
    sampling = Sampling(max_tokens=90_000, ignore_eos=True)
    engine.submit(GATEWAY, make_submit(f"r{number}", prompt, sampling=sampling))


def microseconds_a_step(engine: Engine, *, num_rounds: int, is_encoded: bool) -> float:
    """The best round's mean; with `is_encoded` the message to the gateway is made as well."""
    rounds = []
    for _ in range(num_rounds):
        start_ns = time.thread_time_ns()
        for number in range(STEPS_A_ROUND):
            for events in engine.step().values():
                if is_encoded:
                    wire.encode(StepOutput("first", number, events, engine.stats()))
        rounds.append((time.thread_time_ns() - start_ns) / STEPS_A_ROUND / 1_000)
    return min(rounds)


def main() -> None:
    """Prints one line a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    num_rounds = parser.parse_args().rounds
    for num_rows in (1, 16):
        engine = make_engine(max_running=num_rows)
        for number in range(num_rows):
            submit(engine, number, num_tokens=400)
        step = microseconds_a_step(engine, num_rounds=num_rounds, is_encoded=False)
        sent = microseconds_a_step(engine, num_rounds=num_rounds, is_encoded=True)
        print(f"{num_rows:3} decode rows: step {step:7.1f} us, with its message {sent:7.1f} us")
    for num_shared in (0, 3_900):
        engine = make_engine(max_running=16)
        for number in range(1_016):
            submit(engine, number, num_tokens=4_000, num_shared=num_shared)
        step = microseconds_a_step(engine, num_rounds=num_rounds, is_encoded=False)
        print(
            f" 16 decode rows, 1,000 prompts of 4,000 tokens queued, {num_shared:,} tokens"
            f" in common: step {step:7.1f} us"
        )


if __name__ == "__main__":
    main()
