"""How a finished answer that is not valid becomes one that is.

It is taken back to before the choice that is to blame, which is then forbidden, and goes on from
there; so it also works where always the best token is taken. Tried again a few times, further
back where that did not help.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from gateway.errors import ConstraintUnmet
from gateway.held_answer import HeldAnswer, only_phases
from gateway.tokenizer import Tokenizer
from grammar.answer_places import ENDED_TOO_EARLY, Problem
from runtime.messages import ErrorCode, Phase, Submit, TokenEvent
from telemetry import names

# A place at which nothing else is possible costs no tokens, and yet is bounded.
PLACES_PER_RETRY = 4

GoOn = Callable[[Submit, Submit], AsyncGenerator[TokenEvent, None]]
Judge = Callable[[HeldAnswer], Awaitable[Problem | None]]


@dataclass(eq=False, slots=True)
class _Trail:
    """What was tried. What is known of a position holds while the tokens before it stay."""

    forbidden: dict[int, set[int]] = field(default_factory=dict)
    exhausted: set[int] = field(default_factory=set)
    num_failures: dict[object, int] = field(default_factory=dict)

    def note(self, problem: Problem) -> int:
        """How often this has been wrong before. A container that ends too early shall go on each
        time anew."""
        what = (problem.path, problem.keyword)
        num_before = self.num_failures.get(what, 0)
        self.num_failures[what] = num_before + 1
        return 0 if problem.keyword in ENDED_TOO_EARLY else num_before

    def forbid(self, position: int, token_id: int) -> tuple[int, ...]:
        """All tokens that may not stand there now."""
        self.forbidden = {at: ids for at, ids in self.forbidden.items() if at <= position}
        self.exhausted = {at for at in self.exhausted if at < position}
        self.forbidden.setdefault(position, set()).add(token_id)
        return tuple(sorted(self.forbidden[position]))


class MendedChoice:
    """One choice of a request, from its first failure on. `go_on` runs a continuation of the
    request, `judge` says what is wrong with its answer."""

    def __init__(
        self,
        request: Submit,
        answer: HeldAnswer,
        problem: Problem,
        *,
        go_on: GoOn,
        judge: Judge,
        tokenizer: Tokenizer,
    ) -> None:
        self._request = request
        self._choice = answer.last.choice
        self._answer = answer
        self._problem = problem
        self._go_on = go_on
        self._judge = judge
        self._tokenizer = tokenizer
        self._trail = _Trail()
        self._num_before = self._trail.note(problem)

    async def events(
        self, *, max_retries: int, retry_log: list[int]
    ) -> AsyncGenerator[TokenEvent, None]:
        """Phases as they end, then the whole of a valid answer, or of one that ended in an error
        or at its limit. `retry_log` gets the number of tokens that each retry threw away.

        Raises: ConstraintUnmet.
        """
        num_retries = 0
        for number in range(max_retries * PLACES_PER_RETRY):
            position = self._place() if num_retries < max_retries else None
            if position is None:
                break
            attempt = self._answer.before(position)
            later = self._continuation(position, number=number)
            async with aclosing(self._go_on(self._request, later)) as events:
                async for event in events:
                    attempt.add(event)
                    yield self._own(only_phases(event))
            if attempt.last_event is None:
                return  # the engine left it unfinished, which the run tells
            if _found_nothing(attempt, position):
                self._trail.exhausted.add(position)
                continue
            num_retries += 1
            retry_log.append(len(self._answer.token_ids) - position)
            problem = await self._judge(attempt)
            if problem is None:
                yield self._own(attempt.released())
                return
            self._answer, self._problem = attempt, problem
            self._num_before = self._trail.note(problem)
        raise ConstraintUnmet(
            f"The model gave no answer that fits its constraint in {num_retries + 1} tries; of the"
            f" last one: {self._problem.message}."
        )

    def _place(self) -> int | None:
        """The token to take back next, with all that follow; None where none is left."""
        places = dict.fromkeys(
            self._answer.token_at(anchor, self._tokenizer) for anchor in self._problem.anchors
        )
        left = [place for place in places if place not in self._trail.exhausted]
        return left[min(self._num_before, len(left) - 1)] if left else None

    def _continuation(self, position: int, *, number: int) -> Submit:
        request, token_ids = self._request, self._answer.token_ids
        left = request.sampling.max_tokens - position
        return msgspec.structs.replace(
            request,
            request_id=f"{request.request_id}.{self._choice}.{number}",
            sampling=msgspec.structs.replace(request.sampling, max_tokens=left),
            num_choices=1,
            queue_deadline_ns=0,  # the request has been in the queue
            num_prompt_logprobs=None,  # its scores are known
            output_prefix=token_ids[:position],
            first_forbidden=self._trail.forbid(position, token_ids[position]),
        )

    def _own(self, event: TokenEvent) -> TokenEvent:
        """An event of a continuation as one of the request."""
        return msgspec.structs.replace(
            event,
            request_id=self._request.request_id,
            choice=self._choice,
            admitted=False,
            phases=[_of_choice(phase, self._choice) for phase in event.phases],
        )


_NOTHING_FITS = (ErrorCode.CONSTRAINT_FAILED, ErrorCode.NO_TOKEN_LEFT)


def _found_nothing(attempt: HeldAnswer, position: int) -> bool:
    """Whether nothing but what is forbidden could stand at the position."""
    error = attempt.last.error
    has_none = len(attempt.token_ids) == position
    return has_none and error is not None and error.code in _NOTHING_FITS


def _of_choice(phase: Phase, choice: int) -> Phase:
    attributes = {**phase.attributes, names.ATTR_CHOICE: choice}
    return msgspec.structs.replace(phase, attributes=attributes)
