"""The last look at calls before their client is told that they are complete: what a strict tool
was asked for is validated, as every other strict answer is."""

from collections.abc import Iterable

from gateway.answer_check import AnswerChecks
from gateway.tools.calls import ToolRequest
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

    async def problem(self, calls: Iterable[tuple[str, str]]) -> str | None:
        """What is wrong with one of the complete calls, each a name and its arguments.

        Raises: GrammarError where nothing can be said of it.
        """
        for name, arguments in calls:
            spec = self._strict.get(name)
            check = None if spec is None else self._checks.of(spec)
            problem = None if check is None else await check.problem(arguments)
            if problem is not None:
                return f"the arguments of '{name}': {problem.message}"
        return None
