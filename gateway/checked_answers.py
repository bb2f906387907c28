"""Answers to a constraint that the mask enforces in part: held back, validated, and mended.

Stands between a GenerationRun and its engine. How a wrong answer is mended is mended_choice.py.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from functools import partial

from gateway.answer_check import AnswerCheck
from gateway.engine_faults import RETRY_AFTER_S
from gateway.errors import ConstraintUnmet, Overloaded
from gateway.final_check import Verdict, verdict_attributes
from gateway.generation import GenerationRequest
from gateway.held_answer import HeldAnswer, only_phases
from gateway.mended_choice import MendedChoice
from gateway.merged_streams import merge_streams
from gateway.tokenizer import Tokenizer
from grammar.answer_places import Problem
from grammar.errors import GrammarError
from runtime.messages import EngineInfo, Phase, Submit, TokenEvent
from runtime.token_engine import EngineUnavailable, TokenEngine
from telemetry import names


class CheckedEngine:
    """Of one request, whose `retry_log` gets the number of tokens that each retry threw away and
    whose `phase_log` each validation."""

    def __init__(
        self,
        engine: TokenEngine,
        *,
        check: AnswerCheck,
        tokenizer: Tokenizer,
        max_retries: int,
        request: GenerationRequest,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._engine = engine
        self._check = check
        self._tokenizer = tokenizer
        self._max_retries = max_retries
        self._request = request
        self._clock = clock
        self._later_ids: dict[str, set[str]] = {}

    @property
    def info(self) -> EngineInfo | None:
        return self._engine.info

    def submit(self, request: Submit) -> AsyncIterator[TokenEvent]:
        """As TokenEngine.submit(); all tokens of a choice come with its last event.

        The iterator raises ConstraintUnmet where no valid answer was found.
        """
        return self._run(request, self._engine.submit(request))

    def abort(self, request_id: str, choice: int | None = None) -> None:
        """Also of what goes on with a choice of the request."""
        self._engine.abort(request_id, choice)
        for later_id in self._later_ids.get(request_id, ()):
            self._engine.abort(later_id)

    async def _run(
        self, request: Submit, stream: AsyncIterator[TokenEvent]
    ) -> AsyncGenerator[TokenEvent, None]:
        reasoning = None if request.constraint is None else request.constraint.reasoning
        answers = [HeldAnswer(reasoning=reasoning) for _ in range(request.num_choices)]
        mended: list[AsyncGenerator[TokenEvent, None]] = []
        try:
            async for event in _closing(stream):
                answer = answers[event.choice]
                answer.add(event)
                if not event.is_last:
                    yield only_phases(event)
                    continue
                problem = await self.problem(answer, choice=event.choice)
                if problem is None:
                    yield answer.released(event.phases)
                else:
                    yield only_phases(event)
                    mended.append(self._mended(request, answer, problem))
            if mended:
                async with aclosing(merge_streams(mended)) as merged:
                    async for _, event in merged:
                        yield event
        finally:
            for events in mended:
                await events.aclose()

    async def problem(self, answer: HeldAnswer, *, choice: int) -> Problem | None:
        """None also for an answer that ended in another way than by being complete.

        Raises: ConstraintUnmet where nothing can be said.
        """
        if answer.last.finish_reason != "stop":
            return None
        start_ns = self._clock()
        verdict: Verdict = "unknown"
        problem: Problem | None = None
        try:
            problem = await self._check.problem(answer.text(self._tokenizer))
            verdict = "valid" if problem is None else "invalid"
            return problem
        except GrammarError as error:
            raise ConstraintUnmet(f"The answer could not be checked: {error}.") from error
        finally:
            spec = self._request.constraint
            attributes = verdict_attributes(
                verdict,
                problem,
                choice=choice,
                kind=None if spec is None else spec.kind,
            )
            self._request.phase_log.append(
                Phase(names.SPAN_VALIDATE, start_ns, self._clock(), attributes)
            )

    def _mended(
        self, request: Submit, answer: HeldAnswer, problem: Problem
    ) -> AsyncGenerator[TokenEvent, None]:
        choice = MendedChoice(
            request,
            answer,
            problem,
            go_on=self._go_on,
            judge=partial(self.problem, choice=answer.last.choice),
            tokenizer=self._tokenizer,
        )
        return choice.events(max_retries=self._max_retries, retry_log=self._request.retry_log)

    async def _go_on(self, request: Submit, later: Submit) -> AsyncGenerator[TokenEvent, None]:
        """The events of `later`, which is aborted with `request`."""
        try:
            stream = self._engine.submit(later)
        except EngineUnavailable as error:
            raise Overloaded(str(error), retry_after_s=RETRY_AFTER_S) from error
        later_ids = self._later_ids.setdefault(request.request_id, set())
        later_ids.add(later.request_id)
        try:
            async for event in _closing(stream):
                yield event
        finally:
            later_ids.discard(later.request_id)


async def _closing(stream: AsyncIterator[TokenEvent]) -> AsyncGenerator[TokenEvent, None]:
    """The stream, closed with this one, which is what aborts it in the engine."""
    try:
        async for event in stream:
            yield event
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
