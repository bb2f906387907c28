"""The engine: from submitted requests to token events, one step at a time.

Owns the table of requests, the matchers in use and the outbox; the scheduler owns queues and
pages, the executor the device. Everything here belongs to the loop's thread (loop.py).
"""

import logging
import math
import time
from collections.abc import Callable
from itertools import count

from grammar.errors import GrammarError
from prefix_cache import PrefixCache
from prefix_cache.evicted_log import EvictedLog
from runtime.admission import choices_to_answer, find_fault
from runtime.batch import Executor, RowKey, SampledToken
from runtime.cache_messages import CacheQuery
from runtime.cache_questions import CacheQuestions
from runtime.config import RuntimeConfig
from runtime.counters import Counters
from runtime.deadlines import Deadlines, RequestKey
from runtime.finish_rules import ConstraintFailed, Ending, FinishRules
from runtime.grammar_builder import BuildOutcome, GrammarBuilder
from runtime.jump_forward import JumpForward
from runtime.lower_tiers import LowerTiers, NoTiers, Tiering
from runtime.messages import (
    Abort,
    EngineFault,
    EngineInfo,
    EngineStats,
    ErrorCode,
    StepSpan,
    Submit,
    TokenEvent,
)
from runtime.outbox import Outbox
from runtime.phases import PhaseLog, QueueReason
from runtime.question_queue import AnswerOrFuture
from runtime.request import Request, Sequence, SequenceState
from runtime.sample_planner import SamplePlanner
from runtime.schedule import Schedule
from runtime.scheduler import Scheduler, SchedulerLimits
from runtime.step_budget import StepBudget
from runtime.step_record import StepRecorder
from runtime.step_sampling import StepSampling
from runtime.tier_threads import TierSet

_log = logging.getLogger(__name__)


class Engine:
    """One model's requests. An exception of the executor is not caught: the process is no longer
    to be trusted with its device, and whoever supervises it starts another."""

    def __init__(
        self,
        *,
        executor: Executor,
        cache: PrefixCache,
        info: EngineInfo,
        config: RuntimeConfig,
        grammar: GrammarBuilder | None,
        clock: Callable[[], int] = time.time_ns,
        tiers: TierSet | None = None,
        evicted: EvictedLog | None = None,
    ) -> None:
        """`evicted` is what the cache reports evictions to."""
        self._executor = executor
        self._cache = cache
        self._info = info
        self._grammar = grammar
        self._clock = clock
        # A sequence alone must always be able to finish, whatever the model would allow.
        self._max_model_len = min(info.max_model_len, info.num_pages * info.page_size)
        self._counters = Counters()
        self._outbox = Outbox()
        self._requests: dict[RequestKey, Request] = {}
        self._deadlines = Deadlines()
        self._building: list[Request] = []
        self._keys = count()
        self._rules = FinishRules(frozenset(info.eos_token_ids), self._max_model_len)
        self._jump_forward = JumpForward(self._rules, is_on=config.jump_forward)
        planner = SamplePlanner(
            self._rules, vocab_size=info.vocab_size, max_rows=config.max_running
        )
        self._sampling = StepSampling(executor, planner, tries_first=info.device == "cpu")
        self._recorder = StepRecorder(config.trace_steps, clock=clock)
        step_budget = StepBudget(config.max_step_tokens)
        self._tiers: Tiering = NoTiers()
        if tiers is not None:
            self._tiers = LowerTiers(
                cache, tiers, executor=executor, prefill=step_budget.prefill_estimate, clock=clock
            )
        if evicted is None:  # an empty log is false
            evicted = EvictedLog()
        self._questions = CacheQuestions(
            cache, info, evicted=evicted, tiers=self._tiers, clock=clock
        )
        self._scheduler = Scheduler(
            cache,
            _limits(config, info, max_model_len=self._max_model_len),
            step_budget=step_budget,
            counters=self._counters,
            clock=clock,
        )

    def step(self) -> dict[bytes, list[TokenEvent]]:
        """One turn: at most one forward, at most one event a choice."""
        self._expire_deadlines()
        self._collect_matchers()
        self._tiers.between_steps()
        self._collect_promoted()
        schedule = self._schedule()
        if schedule.sequences:
            start_ns = self._clock()
            self._recorder.begin(schedule, start_ns)
            self._executor.forward(schedule.batch)
            self._recorder.computed()
            sampled = self._sampling.sample(schedule.sampled)
            self._recorder.sampled()
            if scored := schedule.scored:
                for sequence, logprobs in zip(scored, self._executor.score(), strict=True):
                    sequence.add_scores(logprobs)
            self._advance(schedule, start_ns)
            self._commit(schedule, sampled)
            self._finish_unsampled(schedule)
            self._recorder.end(self.stats)
            self._tiers.after_step(self._clock() - start_ns)
        return self._outbox.take()

    def take_recorded(self) -> tuple[bytes, StepSpan] | None:
        """The last step, if it is one that is recorded, and the gateway to tell it to."""
        return self._recorder.take()

    def has_work(self) -> bool:
        """Whether a step would do anything now; waiting for a matcher alone is no work."""
        return (
            self._scheduler.num_running + self._scheduler.num_waiting > 0
            or not self._outbox.is_empty
            or self._tiers.has_news()
            or any(request.build and request.build.outcome for request in self._building)
        )

    def stats(self) -> EngineStats:
        """Gauges and counters as of now."""
        num_building = sum(len(request.live_sequences) for request in self._building)
        return self._counters.stats(
            self._cache,
            num_waiting=self._scheduler.num_waiting + num_building + self._tiers.num_waiting,
            num_running=self._scheduler.num_running,
            tiers=self._tiers.uses(),
        )

    def idle(self) -> bool:
        """Uses a moment without work: some milliseconds at most. Whether there is more to do."""
        return self._tiers.idle()

    def close(self) -> None:
        """After the last step: what is cached is written to the lower tiers, for a bounded time."""
        self._tiers.close()

    def answer(self, query: CacheQuery) -> AnswerOrFuture:
        """What a gateway asks about the prefix cache; between two steps only."""
        return self._questions.answer(query)

    def next_deadline_ns(self) -> int | None:
        """When a step is due even if there is no other work."""
        deadlines = [_next_deadline_ns(request) for request in self._requests.values()]
        deadlines.append(self._tiers.next_deadline_ns() or 0)
        return min((deadline for deadline in deadlines if deadline), default=None)

    def submit(self, gateway: bytes, request: Submit) -> None:
        """Takes a request; what is wrong with it comes as error events of the next step.

        An id that is in use names a request that is being answered already: the repetition is
        ignored, since an error event would be taken for the first one's end. Whoever listens to
        the id gets the events of the first.
        """
        key = (gateway, request.request_id)
        if key in self._requests:
            _log.warning(
                "request %r was submitted twice; the first goes on",
                key[1][:200],
                extra=request.log_fields,
            )
            return
        fault = find_fault(request, self._info, max_model_len=self._max_model_len)
        if fault is not None:
            self._reject(gateway, request, EngineFault(ErrorCode.INVALID_REQUEST, fault))
        elif request.constraint is not None and self._grammar is None:
            reason = "this runtime was started without grammar engines"
            self._reject(gateway, request, EngineFault(ErrorCode.CONSTRAINT_FAILED, reason))
        else:
            self._requests[key] = self._enqueue(gateway, request)
            self._deadlines.add(key, request.queue_deadline_ns, request.deadline_ns)

    def abort(self, gateway: bytes, abort: Abort) -> None:
        """Frees the pages of what is named at once; no event of it follows. Idempotent."""
        self._outbox.drop_rejections(gateway, abort)
        request = self._requests.get((gateway, abort.request_id))
        for sequence in request.live_sequences if request is not None else ():
            if abort.choice in (None, sequence.choice):
                self._end(sequence)
                self._outbox.drop(sequence)

    def abort_gateway(self, gateway: bytes) -> None:
        """Aborts all requests of a gateway that is gone."""
        self._outbox.drop_rejections(gateway)
        for owner, request_id in tuple(self._requests):
            if owner == gateway:
                self.abort(gateway, Abort(request_id))

    def _reject(self, gateway: bytes, request: Submit, fault: EngineFault) -> None:
        _log.debug("a request is refused: %s", fault.code, extra=request.log_fields)
        choices = choices_to_answer(request)
        self._outbox.add_rejection(gateway, request.request_id, choices=choices, fault=fault)

    def _enqueue(self, gateway: bytes, submit: Submit) -> Request:
        """One sequence per choice; queued, or set aside until the matcher is built."""
        request = Request(gateway, submit, tuple(submit.prompt_token_ids))
        now_ns = self._clock()
        for choice in range(submit.num_choices):
            sequence = Sequence(
                key=RowKey(next(self._keys)),
                request=request,
                choice=choice,
                token_ids=[*request.prompt_ids, *submit.output_prefix],
                phases=PhaseLog(choice, queued_since_ns=now_ns),
                state=SequenceState.BUILDING,
            )
            request.sequences.append(sequence)
        if submit.constraint is None or self._grammar is None:
            self._queue(request)
        else:
            request.build = self._grammar.start(submit.constraint)
            self._begin_building(request)
        return request

    def _queue(self, request: Request) -> None:
        """Set aside before that while lower tiers are asked for its pages."""
        if request.is_finished or not self._tiers.hold(request):
            self._add_to_scheduler(request)
        self._tell_phases(request)

    def _tell_phases(self, request: Request) -> None:
        """What happened before admission is told at once: after an abort nothing is."""
        for sequence in request.live_sequences:
            if sequence.phases.has_ready:
                self._outbox.add_phases(sequence)

    def _collect_promoted(self) -> None:
        """Queues the requests whose pages came from lower tiers, or did not."""
        for request in self._tiers.take_ready():
            self._add_to_scheduler(request)
            self._tell_phases(request)

    def _add_to_scheduler(self, request: Request) -> None:
        for sequence in request.live_sequences:
            self._scheduler.add(sequence)

    def _begin_building(self, request: Request) -> None:
        assert request.build is not None
        request.is_build_cached = request.build.outcome is not None
        for sequence in () if request.is_build_cached else request.sequences:
            sequence.phases.hold(QueueReason.GRAMMAR)
        self._building.append(request)

    def _expire_deadlines(self) -> None:
        now_ns = self._clock()
        for key in self._deadlines.take_due(now_ns):
            request = self._requests.get(key)
            if request is None:
                continue
            submit = request.submit
            if 0 < submit.deadline_ns <= now_ns:
                fault = EngineFault(ErrorCode.DEADLINE_EXCEEDED, "the request's deadline passed")
                self._fail_all(request.live_sequences, fault)
            elif 0 < submit.queue_deadline_ns <= now_ns:
                queued = [one for one in request.live_sequences if not one.was_admitted]
                fault = EngineFault(ErrorCode.QUEUE_TIMEOUT, "the request waited too long")
                self._fail_all(queued, fault)

    def _collect_matchers(self) -> None:
        """Queues the requests whose matcher is there; those that cannot have one end."""
        for request in tuple(self._building):
            assert request.build is not None
            outcome = request.build.outcome
            if outcome is None:
                continue
            self._building.remove(request)
            try:
                self._arm(request, outcome)
            except (ConstraintFailed, GrammarError) as error:
                self._fail_all(request.live_sequences, _constraint_fault(error))
            self._queue(request)

    def _arm(self, request: Request, outcome: BuildOutcome) -> None:
        """Gives each choice a matcher of its own, behind what the answer begins with.

        Raises: ConstraintFailed, GrammarError.
        """
        if outcome.matcher is None:
            raise GrammarError(outcome.error)
        assert request.submit.constraint is not None
        matcher, prefix = outcome.matcher.fork(), request.submit.output_prefix
        num_accepted = matcher.accept(prefix)
        if num_accepted < len(prefix):
            raise ConstraintFailed(f"token {num_accepted} of output_prefix does not fit it")
        first, *others = request.live_sequences
        first.matcher = matcher
        self._jump_forward.open(first)
        for sequence in others:  # which begin as the first does, at no cost of their own
            sequence.matcher = matcher.fork()
            sequence.token_ids = first.token_ids.copy()
        # Cached: this request did not wait for the build, so its span has no length.
        # One that it joined under way began for another, before it came.
        start_ns = max(outcome.start_ns, first.phases.queued_since_ns or 0)
        end_ns = max(start_ns, outcome.end_ns)
        if request.is_build_cached:
            start_ns = end_ns = self._clock()
        first.phases.compiled(
            start_ns,
            end_ns,
            engine=request.submit.constraint.engine,
            is_cached=request.is_build_cached,
        )

    def _schedule(self) -> Schedule:
        schedule = self._scheduler.schedule()
        for sequence in schedule.admitted:
            self._questions.admitted(sequence)
            self._outbox.add_admitted(sequence)
        for sequence in schedule.preempted:
            self._outbox.add_phases(sequence)
        if schedule.unfit:
            reason = "the request does not fit the KV memory, even alone"
            self._fail_all(list(schedule.unfit), EngineFault(ErrorCode.OVERLOADED, reason))
        return schedule

    def _advance(self, schedule: Schedule, start_ns: int) -> None:
        """Notes what the step computed, and the prefill chunks in it."""
        end_ns = self._clock()
        rows = schedule.batch.rows
        recomputed = [sequence.num_recomputed_tokens for sequence in schedule.sequences]
        self._scheduler.advance(schedule, elapsed_ns=end_ns - start_ns)
        for sequence, row, before in zip(schedule.sequences, rows, recomputed, strict=True):
            if row.start < sequence.input_len:
                sequence.phases.prefilled(
                    start_ns,
                    end_ns,
                    num_tokens=len(row.token_ids),
                    num_rows=len(rows),
                    num_recomputed=sequence.num_recomputed_tokens - before,
                    step=self._recorder.traceparent,
                )
                self._outbox.add_phases(sequence)

    def _commit(self, schedule: Schedule, sampled: tuple[SampledToken, ...]) -> None:
        """Appends each sampled token to its sequence and ends those that are complete."""
        now_ns = self._clock()
        for sequence, outcome in zip(schedule.sampled, sampled, strict=True):
            try:
                self._take(sequence, outcome, now_ns=now_ns)
            except (ConstraintFailed, GrammarError) as error:
                self._fail_all([sequence], _constraint_fault(error))

    def _take(self, sequence: Sequence, outcome: SampledToken, *, now_ns: int) -> None:
        if outcome.token_id is None:
            raise self._rules.nothing_left(sequence)
        ending = self._rules.take(sequence, outcome.token_id)
        if ending is None:
            ending = self._jump_forward.follow(sequence)
        token_ids = sequence.take_untold_ids()
        self._counters.generated_tokens += len(token_ids)
        self._counters.forced_tokens += len(token_ids) - 1
        sequence.phases.decoded(now_ns, num_tokens=len(token_ids))
        self._outbox.add_tokens(sequence, token_ids, outcome.logprob)
        if ending is not None:
            self._finish(sequence, ending)

    def _finish_unsampled(self, schedule: Schedule) -> None:
        """Ends those that are asked for no token, when their prompt is computed."""
        for sequence in schedule.sequences:
            if sequence.sampling.max_tokens == 0 and sequence.num_uncomputed_tokens == 0:
                self._finish(sequence, Ending("length"))

    def _finish(self, sequence: Sequence, ending: Ending) -> None:
        self._close_phases(sequence, ending.reason)
        self._outbox.add_finish(sequence, ending)
        self._end(sequence)

    def _fail_all(self, sequences: list[Sequence], fault: EngineFault) -> None:
        """Each gets the error as its last event, with the phases so far."""
        for sequence in sequences:
            self._close_phases(sequence, None)
            self._outbox.add_error(sequence, fault)
            self._end(sequence)

    def _close_phases(self, sequence: Sequence, finish_reason: str | None) -> None:
        sequence.phases.end(
            self._clock(),
            num_recomputed=sequence.num_recomputed_tokens,
            finish_reason=finish_reason,
        )

    def _end(self, sequence: Sequence) -> None:
        """Frees what the sequence holds, and forgets its request with its last one."""
        self._scheduler.end(sequence)
        sequence.matcher = None
        request = sequence.request
        if not request.is_finished:
            return
        del self._requests[request.gateway, request.submit.request_id]
        if request in self._building:
            self._building.remove(request)
            self._drop_build(request)
        self._tiers.drop(request)

    def _drop_build(self, request: Request) -> None:
        if self._grammar is not None and request.build is not None:
            self._grammar.drop(request.build)


def _limits(config: RuntimeConfig, info: EngineInfo, *, max_model_len: int) -> SchedulerLimits:
    return SchedulerLimits(
        page_size=info.page_size,
        max_running=config.max_running,
        max_step_tokens=config.max_step_tokens,
        num_watermark_pages=math.ceil(config.watermark * info.num_pages),
        max_model_len=max_model_len,
        max_overtaking_ns=round(config.max_overtaking_s * 1e9),
        page_bytes=info.page_bytes,
    )


def _constraint_fault(error: ConstraintFailed | GrammarError) -> EngineFault:
    code = error.code if isinstance(error, ConstraintFailed) else ErrorCode.CONSTRAINT_FAILED
    return EngineFault(code, str(error))


def _next_deadline_ns(request: Request) -> int:
    """0 = none."""
    submit = request.submit
    is_queued = any(not sequence.was_admitted for sequence in request.live_sequences)
    deadlines = (submit.deadline_ns, submit.queue_deadline_ns if is_queued else 0)
    return min((deadline for deadline in deadlines if deadline), default=0)
