"""The last look at calls before their client is told that they are complete: what a strict tool
was asked for is validated, as every other strict answer is."""

from collections.abc import Iterable
from dataclasses import replace

from gateway.answer_check import AnswerChecks
from gateway.tools.calls import ToolRequest
from grammar.answer_places import Problem
from grammar.spec import ConstraintSpec


class ToolCheck:
    """Of the calls of one request."""

    def __init__(self, checks: AnswerChecks, request: ToolRequest) -> None:
        self._checks = checks
        self._strict = {
            tool.name: ConstraintSpec("json_schema", tool.parameters)
            for tool in request.tools
            if tool.is_strict
        }

    @property
    def is_needed(self) -> bool:
        """Whether there is a strict tool."""
        return bool(self._strict)

    async def problem(self, calls: Iterable[tuple[str, str]]) -> Problem | None:
        """What is wrong with one of the complete calls, each a name and its arguments.

        Raises: GrammarError where nothing can be said of it.
        """
        for name, arguments in calls:
            spec = self._strict.get(name)
            check = None if spec is None else self._checks.of(spec)
            problem = None if check is None else await check.problem(arguments)
            if problem is not None:
                return replace(problem, message=f"the arguments of '{name}': {problem.message}")
        return None
