"""The last look at a constrained answer before its client is told that it is complete.

JSON is validated against the schema that was asked for, a choice looked up. Of other kinds the
mask is the proof. Owned by TokenGenerator.
"""

import asyncio
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from grammar.answer_places import Problem
from grammar.spec import ConstraintSpec

if TYPE_CHECKING:
    from grammar.validation import AnswerValidator

# What was validated in some milliseconds the last time is not worth a thread.
MAX_INLINE_S = 0.005
MAX_INLINE_CHARS = 2_000
MAX_INLINE_SCHEMA_CHARS = 20_000
# Schemas whose validators are kept, by their number and their characters together.
MAX_KEPT = 256
MAX_KEPT_CHARS = 16 * 1024 * 1024

_ANY_OBJECT = '{"type":"object"}'


class AnswerChecks:
    """Keeps validators, and the worker for what takes long. Made once per server."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="validate")
        self._kept: OrderedDict[str, JsonCheck] = OrderedDict()
        self._num_chars = 0

    def close(self) -> None:
        """Ends the worker; a text in work is finished, waiting ones are dropped."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def of(self, spec: ConstraintSpec) -> "JsonCheck | ChoiceCheck | None":
        """The check of answers to this constraint; None where there is none."""
        match spec.kind:
            case "json_schema":
                return self._json(spec.value)
            case "json_object":
                return self._json(_ANY_OBJECT)
            case "choice":
                return ChoiceCheck(spec.value)
        return None

    def _json(self, schema: str) -> "JsonCheck":
        check = self._kept.get(schema)
        if check is None:
            check = self._kept[schema] = JsonCheck(schema, self._worker)
            self._num_chars += len(schema)
        self._kept.move_to_end(schema)
        while len(self._kept) > MAX_KEPT or (
            self._num_chars > MAX_KEPT_CHARS and len(self._kept) > 1
        ):
            oldest, _ = self._kept.popitem(last=False)
            self._num_chars -= len(oldest)
        return check


class JsonCheck:
    """Of one schema."""

    def __init__(self, schema: str, worker: ThreadPoolExecutor) -> None:
        self._schema = schema
        self._worker = worker
        self._validator: AnswerValidator | None = None
        self._is_warm = False

    async def problem(self, text: str) -> Problem | None:
        """What is wrong with a finished text.

        Raises: GrammarError where nothing can be said of it.
        """
        if self._is_warm and len(text) <= MAX_INLINE_CHARS:
            return self._judge(text)
        # The first time the library is loaded and the schema read.
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, self._judge, text)

    def _judge(self, text: str) -> Problem | None:
        from grammar.validation import AnswerValidator

        if self._validator is None:
            self._validator = AnswerValidator(self._schema)
        started = time.perf_counter()
        problem = self._validator.problem(text)
        is_quick = time.perf_counter() - started < MAX_INLINE_S
        self._is_warm = is_quick and len(self._schema) <= MAX_INLINE_SCHEMA_CHARS
        return problem


class ChoiceCheck:
    """Of a JSON array of texts."""

    def __init__(self, choices: str) -> None:
        self._choices = choices

    async def problem(self, text: str) -> Problem | None:
        """What is wrong with a finished text."""
        if text in msgspec.json.decode(self._choices, type=list[str]):
            return None
        return Problem("it is none of the choices")


AnswerCheck = JsonCheck | ChoiceCheck
