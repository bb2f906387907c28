"""Drives an engine without a process around it: over the fake executor, or over a real one."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from grammar.spec import PreparedConstraint
from prefix_cache import PrefixCache
from prefix_cache.evicted_log import EvictedLog
from runtime.batch import Executor, RowKey
from runtime.config import RuntimeConfig
from runtime.engine import Engine
from runtime.grammar_builder import GrammarBuilder
from runtime.messages import (
    Abort,
    CacheHints,
    EngineInfo,
    EngineStats,
    ErrorCode,
    FinishReason,
    Phase,
    Sampling,
    StepSpan,
    Submit,
    TokenEvent,
    TraceContext,
)
from runtime.phases import PhaseLog
from runtime.request import Request, Sequence, SequenceState
from runtime.tier_threads import TierSet
from tests.fake_executor import Chooser, FakeExecutor

GATEWAY = b"gateway"
PAGE_SIZE = 16
VOCAB_SIZE = 97
EOS = 96
MAX_STEPS = 20_000


class StepClock:
    """Advances by a microsecond at each reading, or by as much as a test says."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def __call__(self) -> int:
        self.now_ns += 1_000
        return self.now_ns


@dataclass(eq=False)
class Answer:
    """All that came for one choice."""

    events: list[TokenEvent] = field(default_factory=list)

    @property
    def token_ids(self) -> list[int]:
        return [token_id for event in self.events for token_id in event.token_ids]

    @property
    def phases(self) -> list[Phase]:
        return [phase for event in self.events for phase in event.phases]

    @property
    def last(self) -> TokenEvent:
        return self.events[-1]

    @property
    def is_done(self) -> bool:
        return bool(self.events) and self.events[-1].is_last

    @property
    def finish_reason(self) -> FinishReason | None:
        return self.last.finish_reason

    @property
    def error_code(self) -> ErrorCode | None:
        return self.last.error.code if self.last.error is not None else None


def make_info(*, num_pages: int, max_model_len: int, page_size: int = PAGE_SIZE) -> EngineInfo:
    return EngineInfo(
        engine_id="engine",
        incarnation="first",
        model_hash="hash",
        architecture="fake",
        dtype="float32",
        device="cpu",
        vocab_size=VOCAB_SIZE,
        eos_token_ids=(EOS,),
        max_model_len=max_model_len,
        page_size=page_size,
        num_pages=num_pages,
        max_running=16,
        kv_root=b"root",
    )


def make_submit(
    request_id: str,
    prompt: Iterable[int],
    *,
    max_tokens: int = 8,
    num_choices: int = 1,
    sampling: Sampling | None = None,
    constraint: PreparedConstraint | None = None,
    namespace: bytes = b"",
    tenant: str = "",
    use_cache: bool = True,
    num_prompt_logprobs: int | None = None,
    queue_deadline_ns: int = 0,
    deadline_ns: int = 0,
    output_prefix: Iterable[int] = (),
    first_forbidden: tuple[int, ...] = (),
    cache: CacheHints | None = None,
    trace: TraceContext | None = None,
) -> Submit:
    return Submit(
        request_id=request_id,
        prompt_token_ids=list(prompt),
        sampling=sampling or Sampling(max_tokens=max_tokens, ignore_eos=True),
        num_choices=num_choices,
        constraint=constraint,
        namespace=namespace,
        tenant=tenant,
        use_cache=use_cache,
        num_prompt_logprobs=num_prompt_logprobs,
        queue_deadline_ns=queue_deadline_ns,
        deadline_ns=deadline_ns,
        output_prefix=list(output_prefix),
        first_forbidden=first_forbidden,
        cache=cache or CacheHints(),
        trace=trace,
    )


def make_sequence(
    prompt: Iterable[int],
    *,
    key: int = 0,
    choice: int = 0,
    sampling: Sampling | None = None,
    namespace: bytes = b"",
    tenant: str = "",
    use_cache: bool = True,
    num_prompt_logprobs: int | None = None,
    constraint: PreparedConstraint | None = None,
    output_prefix: Iterable[int] = (),
    first_forbidden: tuple[int, ...] = (),
) -> Sequence:
    """One choice of a request that is nowhere queued."""
    submit = make_submit(
        f"request {key}",
        prompt,
        sampling=sampling,
        namespace=namespace,
        tenant=tenant,
        use_cache=use_cache,
        num_prompt_logprobs=num_prompt_logprobs,
        constraint=constraint,
        output_prefix=output_prefix,
        first_forbidden=first_forbidden,
    )
    request = Request(GATEWAY, submit, tuple(submit.prompt_token_ids))
    sequence = Sequence(
        key=RowKey(key),
        request=request,
        choice=choice,
        token_ids=[*request.prompt_ids, *submit.output_prefix],
        phases=PhaseLog(choice, queued_since_ns=0),
        state=SequenceState.BUILDING,
    )
    request.sequences.append(sequence)
    return sequence


class EngineDriver:
    """Any executor behind an engine and a cache of its own. `answers` fills by (gateway, request
    id, choice) as steps are taken, `recorded` with the steps that were chosen to be."""

    def __init__(
        self,
        executor: Executor,
        info: EngineInfo,
        *,
        config: RuntimeConfig,
        grammar: GrammarBuilder | None = None,
        tiers: TierSet | None = None,
    ) -> None:
        self.clock = StepClock()
        evicted = EvictedLog(clock_ns=self.clock)
        self.cache = PrefixCache(
            num_pages=info.num_pages,
            page_size=info.page_size,
            clock_ns=self.clock,
            identity_root=tiers.root if tiers is not None else None,
            observer=evicted,
        )
        self.answers: dict[tuple[bytes, str, int], Answer] = {}
        self.recorded: list[tuple[bytes, StepSpan]] = []
        self.engine = Engine(
            executor=executor,
            cache=self.cache,
            info=info,
            config=config,
            grammar=grammar,
            clock=self.clock,
            tiers=tiers,
            evicted=evicted,
        )

    @property
    def stats(self) -> EngineStats:
        return self.engine.stats()

    def submit(self, request: Submit, gateway: bytes = GATEWAY) -> None:
        self.engine.submit(gateway, request)

    def abort(self, request_id: str, choice: int | None = None) -> None:
        self.engine.abort(GATEWAY, Abort(request_id, choice))

    def step(self) -> list[TokenEvent]:
        """One step; checks the order of events and that pages add up."""
        events: list[TokenEvent] = []
        for gateway, sent in self.engine.step().items():
            for event in sent:
                key = (gateway, event.request_id, event.choice)
                answer = self.answers.setdefault(key, Answer())
                assert not answer.is_done, f"an event after the last one: {event}"
                assert event.seq == len(answer.events), f"events out of order: {event}"
                answer.events.append(event)
                events.append(event)
        if recorded := self.engine.take_recorded():
            self.recorded.append(recorded)
        self.check_pages()
        return events

    def run(self) -> None:
        """Steps until nothing is left to do."""
        for _ in range(MAX_STEPS):
            if not self.engine.has_work():
                return
            self.step()
        raise AssertionError(f"still busy after {MAX_STEPS} steps: {self.stats}")

    def answer(self, request_id: str, choice: int = 0, gateway: bytes = GATEWAY) -> Answer:
        return self.answers[gateway, request_id, choice]

    def is_done(self, request_id: str, choice: int = 0) -> bool:
        """Whether the choice has had its last event."""
        answer = self.answers.get((GATEWAY, request_id, choice))
        return answer is not None and answer.is_done

    def ask(self, request: Submit) -> Answer:
        """Submits one request, runs it to its end, returns its first choice."""
        self.submit(request)
        self.run()
        return self.answer(request.request_id)

    def expect_short_answers(self) -> None:
        """Answers of one token: longer ones are a surprise then, for which pages may be missing."""
        request = make_submit("short", [0], max_tokens=1, use_cache=False)
        self.ask(request)

    def check_pages(self) -> None:
        self.cache.check_invariants()
        counts = self.cache.counts()
        assert counts.free + counts.cached + counts.held == counts.total

    def assert_idle(self) -> None:
        """Nothing runs or waits, no page is held or locked."""
        counts = self.cache.counts()
        assert (self.stats.num_running, self.stats.num_waiting) == (0, 0)
        assert (counts.held, counts.locked) == (0, 0)
        assert self.engine.next_deadline_ns() is None


class EngineHarness(EngineDriver):
    """An engine over the fake executor."""

    def __init__(
        self,
        *,
        num_pages: int = 256,
        max_model_len: int = 4096,
        max_running: int = 16,
        max_step_tokens: int = 512,
        watermark: float = 0.01,
        choose: Chooser | None = None,
        grammar: GrammarBuilder | None = None,
        jump_forward: bool = True,
        page_bytes: int = 0,
        trace_steps: float = 0.0,
    ) -> None:
        self.executor = FakeExecutor(PAGE_SIZE, VOCAB_SIZE, choose)
        config = RuntimeConfig(
            model="fake",
            max_running=max_running,
            max_step_tokens=max_step_tokens,
            watermark=watermark,
            jump_forward=jump_forward,
            trace_steps=trace_steps,
        )
        info = msgspec.structs.replace(
            make_info(num_pages=num_pages, max_model_len=max_model_len), page_bytes=page_bytes
        )
        super().__init__(self.executor, info, config=config, grammar=grammar)


def alone(request: Submit, choice: int = 0) -> list[int]:
    """What the choice answers in an engine of its own without any reuse."""
    harness = EngineHarness(max_step_tokens=4096, max_model_len=8192, num_pages=512)
    harness.submit(request)
    harness.run()
    return harness.answer(request.request_id, choice).token_ids
