"""What a JSON schema costs in tokens a second, and what jump-forward gains: `python -m
tests.bench.constrained`. The engine in this process over the default model, without HTTP.

Each round runs the same prompts free, with each token of a schema's answer sampled, and with
jump-forward; a free answer is as long as the constrained one. Ratios are of one round's runs.
"""

import argparse
import json
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import msgspec
from tokenizers import Tokenizer

from grammar.engines import load_engine
from grammar.matcher import Vocabulary
from grammar.spec import ConstraintSpec, PreparedConstraint
from runtime.batch import Executor, SampledToken, SamplePlan, ScheduledBatch
from runtime.config import RuntimeConfig
from runtime.grammar_builder import GrammarBuilder
from runtime.messages import EngineInfo, Sampling, Submit, TokenLogprob
from runtime.model_runner import load_executor
from runtime.model_source import open_model
from runtime.worker import engine_info
from telemetry.names import ATTR_MASK_TIME_MS, SPAN_DECODE
from tests.bench.machine import this_machine
from tests.bench.workloads import ANSWER_SCHEMA, make_bodies
from tests.engine_harness import EngineDriver, make_submit
from tests.model_file import default_model_path

CLIENTS = (1, 16)
MAX_TOKENS = 128
ARMS = {"sampled": False, "jump-forward": True}
MIN_RATIO = {1: 1.25, 16: 0.95}
PROMPT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


@dataclass(frozen=True, slots=True)
class Run:
    """One arm of a round. `lengths` are those of the answers, in the order of the prompts."""

    seconds: float
    lengths: tuple[int, ...]
    num_forced: int
    num_steps: int
    model_s: float
    mask_s: float

    @property
    def tokens_a_second(self) -> float:
        return sum(self.lengths) / self.seconds

    def describe(self) -> str:
        ours_ms = (self.seconds - self.model_s) / self.num_steps * 1e3
        return (
            f"{self.tokens_a_second:6.1f} tok/s, {self.num_steps} steps of"
            f" {self.model_s / self.num_steps * 1e3:.2f} ms in the executor and {ours_ms:.2f} ms"
            f" beside it, {self.mask_s / self.num_steps * 1e6:.0f} us of that for masks;"
            f" {self.num_forced / sum(self.lengths):.0%} of the tokens forced"
        )


class TimedExecutor:
    """Adds up the time inside of another executor."""

    page_io = None

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.seconds = 0.0

    def forward(self, batch: ScheduledBatch) -> None:
        with self._timed():
            self._executor.forward(batch)

    def sample(self, plan: SamplePlan) -> tuple[SampledToken, ...]:
        with self._timed():
            return self._executor.sample(plan)

    def score(self) -> tuple[list[TokenLogprob], ...]:
        with self._timed():
            return self._executor.score()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start_s = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start_s


class Bench:
    """The default model and the schema's grammar, loaded once."""

    def __init__(self, *, dtype: str) -> None:
        config = RuntimeConfig(model=str(default_model_path()))
        self._config = msgspec.convert(
            {**msgspec.to_builtins(config), "dtype": dtype}, type(config)
        )
        source = open_model(self._config.model)
        loaded = load_executor(source, self._config)
        self._executor = loaded.executor
        self._info: EngineInfo = engine_info("bench", source, loaded, self._config)
        text = source.text
        vocabulary = Vocabulary(text.tokenizer_json, text.vocab_size, tuple(text.eos_token_ids))
        self.tokenizer = Tokenizer.from_str(text.tokenizer_json)
        self._built = threading.Semaphore(0)
        self._builder = GrammarBuilder(vocabulary, on_ready=self._built.release)
        spec = ConstraintSpec(kind="json_schema", value=json.dumps(ANSWER_SCHEMA))
        self._constraint = load_engine("llguidance", vocabulary).prepare(spec)

    def close(self) -> None:
        self._builder.close()

    def constrained(self, prompts: Sequence[str], *, clients: int, jump_forward: bool) -> Run:
        sampling = [Sampling(max_tokens=MAX_TOKENS, temperature=0.0)] * len(prompts)
        requests = self._requests(prompts, sampling, self._constraint)
        return self._run(requests, clients=clients, jump_forward=jump_forward)

    def free(self, prompts: Sequence[str], lengths: Sequence[int], *, clients: int) -> Run:
        sampling = [Sampling(max_tokens=n, temperature=0.0, ignore_eos=True) for n in lengths]
        return self._run(self._requests(prompts, sampling, None), clients=clients)

    def _requests(
        self,
        prompts: Sequence[str],
        samplings: Sequence[Sampling],
        constraint: PreparedConstraint | None,
    ) -> list[Submit]:
        return [
            make_submit(
                str(number),
                self.tokenizer.encode(prompt, add_special_tokens=False).ids,
                sampling=sampling,
                constraint=constraint,
            )
            for number, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True))
        ]

    def _run(self, requests: list[Submit], *, clients: int, jump_forward: bool = True) -> Run:
        """`clients` at a time, each with a next request as soon as it has an answer."""
        executor = TimedExecutor(self._executor)
        config = msgspec.structs.replace(
            self._config, max_running=clients, jump_forward=jump_forward
        )
        driver = EngineDriver(executor, self._info, config=config, grammar=self._builder)
        engine = driver.engine
        start_s = time.perf_counter()
        for request in requests:
            driver.submit(request)
        while not all(driver.is_done(request.request_id) for request in requests):
            if not engine.has_work():
                self._built.acquire(timeout=10.0)
            driver.step()
        seconds = time.perf_counter() - start_s
        answers = [driver.answer(request.request_id) for request in requests]
        decodes = [p for one in answers for p in one.phases if p.name == SPAN_DECODE]
        return Run(
            seconds=seconds,
            lengths=tuple(len(answer.token_ids) for answer in answers),
            num_forced=driver.stats.forced_tokens,
            num_steps=driver.stats.steps,
            model_s=executor.seconds,
            mask_s=sum(float(phase.attributes[ATTR_MASK_TIME_MS]) for phase in decodes) / 1e3,
        )


def run_rounds(bench: Bench, *, clients: int, num_rounds: int) -> float:
    """Prints the medians; returns the median ratio of jump-forward to no constraint."""
    bodies = make_bodies("json", "", num_requests=3 * clients, seed="constrained")
    prompts = [PROMPT.format(body["messages"][0]["content"]) for body in bodies]
    lengths = bench.constrained(prompts, clients=clients, jump_forward=True).lengths
    runs: dict[str, list[Run]] = {name: [] for name in ("free", *ARMS)}
    for _ in range(num_rounds):
        runs["free"].append(bench.free(prompts, lengths, clients=clients))
        for name, jump_forward in ARMS.items():
            run = bench.constrained(prompts, clients=clients, jump_forward=jump_forward)
            runs[name].append(run)
    for name, ran in runs.items():
        middle = sorted(ran, key=lambda run: run.tokens_a_second)[len(ran) // 2]
        print(f"{clients:3} clients, {name:12}: {middle.describe()}")
    ratios = {}
    for name in ARMS:
        pairs = zip(runs[name], runs["free"], strict=True)
        ratios[name] = [one.tokens_a_second / free.tokens_a_second for one, free in pairs]
        spread = f"{min(ratios[name]):.2f} to {max(ratios[name]):.2f}"
        print(f"    {name} / free: {statistics.median(ratios[name]):.2f} ({spread})")
    return statistics.median(ratios["jump-forward"])


def main() -> None:
    """Ends with status 1 where a ratio is below its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="auto")
    options = parser.parse_args()
    print(this_machine().describe())
    with closing(Bench(dtype=options.dtype)) as bench:
        ratios = {
            clients: run_rounds(bench, clients=clients, num_rounds=options.rounds)
            for clients in options.clients
        }
    missed = [clients for clients, ratio in ratios.items() if ratio < MIN_RATIO.get(clients, 0.0)]
    for clients in missed:
        print(f"{clients} clients: below the target of {MIN_RATIO[clients]}")
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
