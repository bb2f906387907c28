"""The last look at each complete answer of a request, and the phase that tells of it.

Owned by GenerationRun; of an answer that the mask enforces in part CheckedEngine tells the same.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Literal

from gateway.answer_check import AnswerCheck
from gateway.errors import ConstraintViolated
from gateway.generation import GenerationRequest
from gateway.tools.calls import CollectedCall
from gateway.tools.check import ToolCheck
from grammar.answer_places import Problem
from grammar.errors import GrammarError
from grammar.keyword_places import known_keyword
from runtime.messages import AttributeValue, Phase
from telemetry import names

# `unknown`: nothing can be said of it, and the mask alone is the proof.
Verdict = Literal["valid", "invalid", "unknown"]

_log = logging.getLogger(__name__)


class FinalCheck:
    """Of one request. `check` is of answers, `tool_check` of calls."""

    def __init__(
        self,
        request: GenerationRequest,
        *,
        check: AnswerCheck | None,
        tool_check: ToolCheck | None,
        clock: Callable[[], int],
    ) -> None:
        self._request = request
        self._check = check
        self._tool_check = tool_check
        self._clock = clock

    @property
    def reads_texts(self) -> bool:
        """Whether verify() has to be given the text of an answer."""
        return self._check is not None

    async def verify(self, choice: int, text: str, calls: Sequence[CollectedCall] = ()) -> None:
        """Raises: ConstraintViolated for a complete answer that is not what was asked for."""
        is_checked = self._tool_check is not None and self._tool_check.is_needed
        if not (is_checked if calls else self.reads_texts):
            return
        start_ns = self._clock()
        verdict: Verdict = "unknown"
        problem: Problem | None = None
        try:
            problem = await self._problem(text, calls)
            verdict = "valid" if problem is None else "invalid"
        except GrammarError:  # its words may be those of the schema
            _log.warning("an answer could not be validated", extra=dict(self._request.log_fields))
        kind = None if self._request.constraint is None else self._request.constraint.kind
        self._request.phase_log.append(
            Phase(
                names.SPAN_VALIDATE,
                start_ns,
                self._clock(),
                verdict_attributes(
                    verdict, problem, choice=choice, kind="tool_calls" if calls else kind
                ),
            )
        )
        if problem is not None:
            raise ConstraintViolated(
                f"The answer does not fit its constraint and is not given: {problem.message}."
            )

    async def _problem(self, text: str, calls: Sequence[CollectedCall]) -> Problem | None:
        if calls and self._tool_check is not None:
            return await self._tool_check.problem((call.name, call.arguments) for call in calls)
        return None if self._check is None else await self._check.problem(text)


def verdict_attributes(
    verdict: Verdict, problem: Problem | None, *, choice: int, kind: str | None
) -> dict[str, AttributeValue]:
    """What a trace says of it: never what the answer or the schema say."""
    attributes: dict[str, AttributeValue] = {
        names.ATTR_VALIDATION: verdict,
        names.ATTR_CHOICE: choice,
    }
    if kind is not None:
        attributes[names.ATTR_CONSTRAINT_KIND] = kind
    if problem is not None and problem.keyword:
        attributes[names.ATTR_CONSTRAINT_KEYWORD] = known_keyword(problem.keyword)
        attributes[names.ATTR_CONSTRAINT_POINTER] = problem.pointer
    return attributes
