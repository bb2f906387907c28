"""Random conversations through an engine with a small page pool, judged against no cache at all.

Many scripts are played at once, so that they share, evict, pin, preempt and abort each other. Each
answer is then computed once more as one whole row in pages that no cache knows: every token has to
be the best one there, up to the first place where the two best are as good as equal.
"""

import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from runtime.batch import (
    Executor,
    PageId,
    RowKey,
    SamplePlan,
    SampleRow,
    ScheduledBatch,
    ScheduledRow,
)
from runtime.cache_messages import (
    CacheDescription,
    CacheExplanation,
    DescribeCache,
    ExplainCache,
)
from runtime.config import RuntimeConfig
from runtime.messages import CacheHints, EngineInfo, Pin, Sampling, Submit, TokenLogprob
from runtime.model_runner import load_executor
from runtime.model_source import open_model
from runtime.worker import engine_info
from tests.engine_harness import GATEWAY, EngineDriver
from tests.tiny_model import write_tiny_model

# Two logits nearer than this may change places when sums are taken in another order.
TIE = 1e-4
MAX_TURNS = 4
MAX_RUNNING = 8
# A script at its longest has 30 pages. With 12 scripts at a time the pool is short, and answers
# that are surprisingly long cost others their places.
NUM_POOL_PAGES = 40
NUM_ACTIVE = 12
NUM_JUDGE_TOKENS = 2048
FIRST_WORD = 3  # after the special tokens
LONG_SHARE = 0.15
GREEDY = Sampling(max_tokens=1, temperature=0.0, ignore_eos=True)


@dataclass(frozen=True, slots=True)
class TinyExecutor:
    """The tiny model in float32. The engine's pool are its first pages, the judge has the rest."""

    executor: Executor
    info: EngineInfo
    config: RuntimeConfig

    @classmethod
    def load(cls, folder: Path) -> "TinyExecutor":
        """Writes the model into `folder`, which may be empty, and loads it."""
        source = open_model(str(write_tiny_model(folder)))
        config = RuntimeConfig(
            model=str(folder),
            dtype="float32",
            device="cpu",
            kv_memory_bytes=16 * 1024 * 1024,
            max_running=MAX_RUNNING,
            max_step_tokens=96,
            watermark=0.0,
        )
        loaded = load_executor(source, config)
        return cls(loaded.executor, engine_info("tiny", source, loaded, config), config)

    def engine(self, *, check_every: int = 1) -> "CheckedDriver":
        """With an empty cache over a pool that is too small."""
        info = msgspec.structs.replace(self.info, num_pages=NUM_POOL_PAGES, page_bytes=1)
        driver = CheckedDriver(self.executor, info, config=self.config)
        driver.check_every = check_every
        return driver


class CheckedDriver(EngineDriver):
    """Looks at the invariants after every so many steps only."""

    check_every = 1
    _num_unchecked = 0

    def check_pages(self) -> None:
        self._num_unchecked += 1
        if self._num_unchecked >= self.check_every:
            self._num_unchecked = 0
            super().check_pages()


@dataclass(eq=False, slots=True)
class Verdict:
    """What the judge found. `stops` are answers that it followed only up to a tie."""

    num_answers: int = 0
    num_tokens: int = 0
    num_stops: int = 0
    faults: list[str] = field(default_factory=list)


class Judge:
    """Computes answers once more, many in one forward, each as one row in pages of its own."""

    def __init__(self, tiny: TinyExecutor) -> None:
        self._executor = tiny.executor
        self._info = tiny.info
        self._waiting: list[tuple[str, list[int], list[int]]] = []
        self.verdict = Verdict()

    def add(self, name: str, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Judges once enough have come; `finish` judges the rest."""
        self._waiting.append((name, list(prompt), list(answer)))
        if sum(len(prompt) + len(answer) for _, prompt, answer in self._waiting) > NUM_JUDGE_TOKENS:
            self.finish()

    def finish(self) -> None:
        given, self._waiting = self._waiting, []
        if not given:
            return
        self._executor.forward(ScheduledBatch(step=0, rows=tuple(self._rows(given))))
        num_eos = len(self._info.eos_token_ids)
        asked = msgspec.structs.replace(GREEDY, num_logprobs=2 + num_eos)
        places = [place for _, _, answer in given for place in range(len(answer))]
        plan = SamplePlan(tuple(SampleRow(asked, choice=0, position=place) for place in places))
        found = iter(self._executor.sample(plan))
        for name, _, answer in given:
            self._judge(name, answer, [next(found).logprob for _ in answer])

    def _rows(self, given: list[tuple[str, list[int], list[int]]]) -> list[ScheduledRow]:
        rows, next_page = [], NUM_POOL_PAGES
        for number, (_, prompt, answer) in enumerate(given):
            token_ids = (*prompt, *answer[:-1])
            num_pages = -(-len(token_ids) // self._info.page_size)
            pages = range(next_page, next_page + num_pages)
            next_page += num_pages
            rows.append(
                ScheduledRow(
                    key=RowKey((1 << 40) + number),
                    token_ids=token_ids,
                    start=0,
                    page_ids=tuple(map(PageId, pages)),
                    sample_offsets=tuple(range(len(prompt) - 1, len(token_ids))),
                )
            )
        assert next_page <= self._info.num_pages, "the judge has too few pages"
        return rows

    def _judge(self, name: str, answer: list[int], found: list[TokenLogprob | None]) -> None:
        self.verdict.num_answers += 1
        for place, (token_id, logprob) in enumerate(zip(answer, found, strict=True)):
            assert logprob is not None
            # End-of-sequence does not stand for election: the answers are asked to ignore it.
            best, second, *_ = (
                one for one in logprob.top if one[0] not in self._info.eos_token_ids
            )
            self.verdict.num_tokens += 1
            if best[1] - second[1] < TIE:
                self.verdict.num_stops += 1
                return
            if token_id != best[0]:
                fault = f"{name}: token {place} is {token_id}, without the cache {best[0]}"
                self.verdict.faults.append(fault)
                return


@dataclass(eq=False, slots=True)
class Script:
    """One conversation. Of its tokens the first `num_settled` are those up to the last answer."""

    name: str
    namespace: bytes
    tokens: list[int]
    num_turns: int
    num_settled: int = 0
    turn: int = 0
    request: Submit | None = None


@dataclass(eq=False, slots=True)
class Play:
    """Scripts of one seed, played by one engine. Of the answers `judged_share` is judged.
    `most_pinned` is the highest number of pinned pages that was seen."""

    driver: EngineDriver
    judge: Judge
    rng: random.Random
    judged_share: float = 1.0
    num_requests: int = 0
    num_aborted: int = 0
    num_flushed: int = 0
    num_questions: int = 0
    most_pinned: int = 0
    active: list[Script] = field(default_factory=list)
    systems: list[list[int]] = field(default_factory=list)

    @classmethod
    def of(
        cls, tiny: TinyExecutor, *, seed: int, check_every: int = 1, judged_share: float = 1.0
    ) -> "Play":
        driver = tiny.engine(check_every=check_every)
        play = cls(driver, Judge(tiny), random.Random(seed), judged_share)
        play.systems = [play.words(play.rng.randint(10, 70)) for _ in range(6)]
        return play

    def words(self, count: int) -> list[int]:
        return [self.rng.randrange(FIRST_WORD, 512) for _ in range(count)]

    def run(self, num_scripts: int) -> Verdict:
        """Plays so many scripts to their ends."""
        for number in range(num_scripts):
            self.begin(number)
        return self.finish()

    def begin(self, number: int) -> None:
        """Starts one more script, once there is a place for it."""
        while len(self.active) >= NUM_ACTIVE:
            self.step()
        self.start(number)

    def finish(self) -> Verdict:
        """Plays what was started to its end; the engine is idle then."""
        while self.active:
            self.step()
        self.judge.finish()
        self.driver.run()
        self.driver.assert_idle()
        return self.judge.verdict

    def start(self, number: int) -> None:
        system = self.rng.choice(self.systems)
        script = Script(
            name=f"script {number}",
            namespace=self.rng.choice((b"a", b"a", b"b")),
            tokens=system[: self.rng.choice((len(system), self.rng.randint(1, len(system))))],
            num_turns=self.rng.randint(2, MAX_TURNS),
        )
        script.num_settled = len(script.tokens)
        self.active.append(script)
        self.say(script)

    def say(self, script: Script) -> None:
        """Submits the next turn of a script, or another one in its place."""
        script.tokens[script.num_settled :] = self.words(self.rng.randint(1, 30))
        lengths = (50, 70) if self.rng.random() < LONG_SHARE else (1, 8)
        max_tokens = self.rng.randint(*lengths)
        sampling = msgspec.structs.replace(GREEDY, max_tokens=max_tokens)
        script.request = Submit(
            request_id=f"{script.name} turn {script.turn} of {self.driver.stats.steps}",
            prompt_token_ids=list(script.tokens),
            sampling=sampling,
            num_choices=self.rng.choice((1, 1, 1, 1, 2, 3)),
            namespace=script.namespace,
            tenant=script.namespace.decode(),
            use_cache=self.rng.random() > 0.05,
            cache=self.hints(script),
        )
        self.driver.submit(script.request)
        self.num_requests += 1

    def hints(self, script: Script) -> CacheHints:
        """Now and then a pin, a limit to what is kept, a token from which the answer is dropped."""
        rng, num_tokens = self.rng, len(script.tokens)
        pins = (Pin(rng.randint(1, num_tokens), rng.choice((0.001, 10.0))),)
        return CacheHints(
            owner=script.namespace.decode(),
            quota_bytes=rng.choice((None, None, NUM_POOL_PAGES // 3)),
            key=rng.choice(("", "k")),
            pins=pins if rng.random() < 0.2 else (),
            keep_len=rng.randint(0, num_tokens + 10) if rng.random() < 0.1 else None,
            dropped_from=rng.randrange(FIRST_WORD, 512) if rng.random() < 0.5 else None,
        )

    def step(self) -> None:
        self.driver.step()
        self.most_pinned = max(self.most_pinned, self.driver.cache.counts().pinned)
        for script in tuple(self.active):
            if self.is_answered(script):
                self.take(script)
        if self.rng.random() < 0.03:
            self.abort()
        if self.rng.random() < 0.05:
            self.ask()
        if self.rng.random() < 0.002:
            self.num_flushed += self.driver.cache.flush(self.rng.choice((None, "a")))

    def is_answered(self, script: Script) -> bool:
        request = script.request
        assert request is not None
        choices = range(request.num_choices)
        return all(self.driver.is_done(request.request_id, choice) for choice in choices)

    def take(self, script: Script) -> None:
        """Has all choices judged; goes on with one of them."""
        request = script.request
        assert request is not None
        answers = [
            self.driver.answer(request.request_id, choice) for choice in range(request.num_choices)
        ]
        for choice, answer in enumerate(answers):
            assert answer.finish_reason == "length", f"{request.request_id}: {answer.last.error}"
            name = f"{request.request_id}, choice {choice}"
            if self.rng.random() < self.judged_share:
                self.judge.add(name, request.prompt_token_ids, answer.token_ids)
        self.forget(request)
        script.tokens += self.rng.choice(answers).token_ids
        script.num_settled = len(script.tokens)
        script.turn += 1
        if script.turn == script.num_turns:
            self.active.remove(script)
        else:
            self.say(script)

    def abort(self) -> None:
        """A client leaves in the midst of an answer, and asks for something else."""
        if not self.active:
            return
        script = self.rng.choice(self.active)
        assert script.request is not None
        self.driver.abort(script.request.request_id)
        self.forget(script.request)
        self.num_aborted += 1
        self.say(script)

    def forget(self, request: Submit) -> None:
        """A long play must not keep every answer."""
        for choice in range(request.num_choices):
            self.driver.answers.pop((GATEWAY, request.request_id, choice), None)

    def ask(self) -> None:
        """What an operator asks changes nothing, least of all what is evicted next."""
        cache, rng = self.driver.cache, self.rng
        tokens = rng.choice(self.systems) + self.words(3)
        before = cache.counts()
        explained = self.driver.engine.answer(
            ExplainCache("explain", tokens, b"a", owner="a", sees_all=rng.random() < 0.5)
        )
        if isinstance(explained, Future):
            explained = explained.result(timeout=0)  # there are no tiers to be asked
        assert isinstance(explained, CacheExplanation)
        assert explained.matched_tokens == cache.peek(b"a", tokens)
        described = self.driver.engine.answer(DescribeCache("describe", rng.choice((None, "a"))))
        assert isinstance(described, CacheDescription)
        assert described.pages_cached == before.cached
        # Pins run out by themselves.
        assert replace(cache.counts(), pinned=before.pinned) == before
        self.num_questions += 2
