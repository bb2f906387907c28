"""A ConstraintProbe that compiles nothing: remembers what it was asked, refuses what it is told."""

import asyncio
from collections.abc import Callable

from grammar.errors import GrammarError
from grammar.probe import ProbeReport
from grammar.spec import ConstraintSpec, Gap, GrammarForm, PreparedConstraint

Prepare = Callable[[ConstraintSpec], PreparedConstraint]


class FakeConstraintProbe:
    """`error` is raised by check(); `gaps` are those of every constraint, unless a test sets
    `prepare`. While `is_held`, check() waits for ever; `num_waiting` says how many do, and
    `reached` is set when the first begins to.
    """

    def __init__(self, error: GrammarError | None = None) -> None:
        self.error = error
        self.gaps: tuple[Gap, ...] = ()
        self.prepare: Prepare = self._as_asked
        self.is_held = False
        self.num_waiting = 0
        self.reached = asyncio.Event()
        self.checked: list[ConstraintSpec] = []

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    async def check(self, spec: ConstraintSpec) -> ProbeReport:
        is_cached = spec in self.checked
        self.checked.append(spec)
        if self.is_held:
            self.num_waiting += 1
            self.reached.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.num_waiting -= 1
        if self.error is not None:
            raise self.error
        prepared = self.prepare(spec)
        return ProbeReport(cached=is_cached, compile_ms=1.0, prepared=prepared)

    def _as_asked(self, spec: ConstraintSpec) -> PreparedConstraint:
        engine = "llguidance" if spec.engine == "auto" else spec.engine
        form: GrammarForm = "regex" if spec.kind == "regex" else "json_schema"
        return PreparedConstraint(engine, form, spec.value, self.gaps)
