"""A grammar engine whose constraints are written out token by token, and that can be held up."""

import json
import threading
from collections.abc import Sequence

from grammar.errors import MatcherFailed, UnsupportedConstraint
from grammar.matcher import MaskRow, Vocabulary
from grammar.spec import ConstraintSpec, EngineName, PreparedConstraint
from tests.engine_harness import EOS

# The value of a spec that cannot be compiled, of one whose matcher breaks, and of one that panics.
UNSUPPORTED = "unsupported"
BROKEN = "broken"
PANIC = "panic"


def scripted(*allowed: Sequence[int], accepting_from: int | None = None) -> PreparedConstraint:
    """Position i of the output must be one of allowed[i]; after the last only the end."""
    lengths = len(allowed) if accepting_from is None else accepting_from
    value = json.dumps({"allowed": [list(ids) for ids in allowed], "accepting_from": lengths})
    return prepared(value)


def prepared(grammar: str) -> PreparedConstraint:
    """A constraint that the fake engine builds by its text alone."""
    return PreparedConstraint("llguidance", "regex", grammar)


class ScriptMatcher:
    """A Matcher over a script of allowed tokens."""

    def __init__(self, allowed: list[list[int]], accepting_from: int) -> None:
        self._allowed = allowed
        self._accepting_from = accepting_from
        self._accepted: list[int] = []

    def _next(self) -> list[int]:
        position = len(self._accepted)
        text = self._allowed[position] if position < len(self._allowed) else []
        return text + ([EOS] if self.is_accepting() else [])

    def fill(self, mask_row: MaskRow) -> None:
        words = [0] * len(mask_row)
        for token_id in self._next():
            words[token_id // 32] |= 1 << (token_id % 32)
        mask_row[:] = [word - (1 << 32) if word >> 31 else word for word in words]

    def accept(self, token_ids: Sequence[int]) -> int:
        for number, token_id in enumerate(token_ids):
            if self._is_ended() or token_id not in self._next():
                return number
            self._accepted.append(token_id)
        return len(token_ids)

    def rollback(self, num_tokens: int) -> None:
        del self._accepted[len(self._accepted) - num_tokens :]

    def fork(self) -> "ScriptMatcher":
        copy = type(self)(self._allowed, self._accepting_from)
        copy._accepted = list(self._accepted)
        return copy

    def forced_tokens(self) -> list[int]:
        forced: list[int] = []
        if self._is_ended():
            return forced
        start = len(self._accepted)
        for position, token_ids in enumerate(self._allowed[start:], start=start):
            if len(token_ids) != 1 or position >= self._accepting_from:
                break
            forced += token_ids
        return forced

    def is_accepting(self) -> bool:
        return len(self._accepted) >= self._accepting_from

    def is_terminated(self) -> bool:
        return self._is_ended() or len(self._accepted) >= len(self._allowed)

    def _is_ended(self) -> bool:
        return bool(self._accepted) and self._accepted[-1] == EOS


class BrokenMatcher(ScriptMatcher):
    """Gives up at its first mask."""

    def fill(self, mask_row: MaskRow) -> None:
        raise MatcherFailed(f"the parser ran out of fuel before {len(mask_row)} words")


class Panic(BaseException):
    """What a crash in a native library looks like from Python."""


class FakeGrammarEngine:
    """`compiled` names what was compiled; with `gate` cleared, compile waits for it, once it has
    `begun`."""

    name = "fake"

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def prepare(self, spec: ConstraintSpec) -> PreparedConstraint:
        return prepared(spec.value)

    def build(self, prepared: PreparedConstraint) -> ScriptMatcher:
        self.begun.set()
        assert self.gate.wait(10.0), "the test never opened the gate"
        self.compiled.append(prepared.grammar)
        if prepared.grammar == UNSUPPORTED:
            raise UnsupportedConstraint("lookbehind is not supported")
        if prepared.grammar == PANIC:
            raise Panic
        if prepared.grammar == BROKEN:
            return BrokenMatcher([[1]], 1)
        script = json.loads(prepared.grammar)
        return ScriptMatcher(script["allowed"], script["accepting_from"])

    def load(self, _name: EngineName, _vocabulary: Vocabulary) -> "FakeGrammarEngine":
        """A loader that always gives this engine."""
        return self
