"""Throws schemas at the compile service and builds in this process, as a runtime does, whatever it
takes. Nothing but a class, a refusal or a passed limit may come of it.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from grammar.errors import ConstraintTooExpensive, MatcherFailed, UnsupportedConstraint
from grammar.matcher import Matcher, Vocabulary, mask_words
from grammar.probe import ConstraintProbe
from grammar.spec import ConstraintSpec, EngineChoice, PreparedConstraint
from runtime.grammar_builder import Build, GrammarBuilder

# So many random tokens are taken from each grammar.
MAX_STEPS = 12
BUILD_LIMIT_S = 60.0
MAX_KEPT_CHARS = 500


@dataclass(frozen=True, slots=True)
class SoakReport:
    """`endings` counts enforced, checked, refused and too complex; `faults` are what must not be:
    number and beginning of the schema, and what happened."""

    endings: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, str, str]] = field(default_factory=list)


class CompileServiceSoak:
    """One probe and one builder over one vocabulary."""

    def __init__(
        self, vocabulary: Vocabulary, *, engine: EngineChoice, time_limit_s: float
    ) -> None:
        self._vocabulary = vocabulary
        self._engine = engine
        self._probe = ConstraintProbe(vocabulary, time_limit_s=time_limit_s)
        self._built = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._builder = GrammarBuilder(vocabulary, on_ready=self._wake)
        self._row = np.zeros(mask_words(vocabulary.vocab_size), dtype=np.int32)
        self._rng = random.Random(1)

    async def run(self, texts: Iterable[str], *, num_workers: int = 2) -> SoakReport:
        """Ends with all children ended."""
        report = SoakReport()
        waiting = enumerate(texts)
        await self._probe.start()
        try:
            await asyncio.gather(*(self._work(waiting, report) for _ in range(num_workers)))
        finally:
            await self._probe.stop()
            self._builder.close()
        return report

    async def _work(self, texts: Iterable[tuple[int, str]], report: SoakReport) -> None:
        for number, text in texts:
            try:
                ending = await self._try_out(text)
            except Exception as error:
                fault = f"{type(error).__name__}: {error}"
                report.faults.append((number, text[:MAX_KEPT_CHARS], fault))
            else:
                report.endings[ending] += 1

    async def _try_out(self, text: str) -> str:
        spec = ConstraintSpec("json_schema", text, self._engine, allows_checked=True)
        try:
            prepared = (await self._probe.check(spec)).prepared
        except UnsupportedConstraint as error:
            if not error.reason or "crashed" in error.reason or "engine failed" in error.reason:
                raise
            return "refused"
        except ConstraintTooExpensive:
            return "too complex"
        matcher = await self._build(prepared)
        try:
            self._take_tokens(matcher)
        except MatcherFailed:
            return f"{prepared.enforcement}, then the matcher gave up"
        return prepared.enforcement

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._built.set)

    async def _build(self, prepared: PreparedConstraint) -> Matcher:
        build: Build = self._builder.start(prepared)
        try:
            async with asyncio.timeout(BUILD_LIMIT_S):
                while build.outcome is None:
                    await self._built.wait()
                    self._built.clear()
        finally:
            self._builder.drop(build)
        if build.outcome.matcher is None:
            raise AssertionError(f"probed, but not built: {build.outcome.error}")
        return build.outcome.matcher.fork()

    def _take_tokens(self, matcher: Matcher) -> None:
        for _ in range(MAX_STEPS):
            matcher.fill(self._row)
            bits = np.unpackbits(self._row.view(np.uint8), bitorder="little")
            allowed = np.flatnonzero(bits)
            token_id = int(allowed[self._rng.randrange(len(allowed))])
            if matcher.accept([token_id]) != 1:
                raise AssertionError(f"the mask allows token {token_id}, the matcher does not")
            if matcher.is_terminated():
                return
