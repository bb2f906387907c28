"""The killable child of a bench: `python -m grammar.bench_worker`, one case at a time.

Compiles as the server's probe does and under its limits, then walks the instances through the
matcher token by token. A crash or a hang costs one case.
"""

import array
import os
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO

import numpy as np

from grammar.bench_file import BenchCase
from grammar.bench_frames import (
    Broken,
    Compiled,
    Job,
    Message,
    Outcome,
    Ready,
    Setup,
    Walked,
    encode,
    read_message,
)
from grammar.bench_notes import keyword_notes
from grammar.bench_spelling import Untestable, instance_value, speller
from grammar.bench_texts import TokenTexts
from grammar.errors import GrammarError, MatcherFailed
from grammar.matcher import Matcher, Vocabulary, mask_words
from grammar.probe_frames import Setup as ProbeSetup
from grammar.probe_worker import ProbeWorker
from grammar.spec import ConstraintSpec, PreparedConstraint
from grammar.validation import AnswerValidator

MAX_NS = 2**32 - 1


class BenchWorker:
    """The child's state: one vocabulary, one choice of engine."""

    def __init__(self, setup: Setup) -> None:
        """Raises: GrammarError, ImportError where the engine cannot be loaded."""
        vocabulary = Vocabulary(setup.tokenizer_json, setup.vocab_size, setup.eos_token_ids)
        self._setup = setup
        self._texts = TokenTexts(vocabulary)
        self._row = np.zeros(mask_words(setup.vocab_size), dtype=np.int32)
        self._compiler = ProbeWorker(
            ProbeSetup(
                setup.tokenizer_json,
                setup.vocab_size,
                setup.eos_token_ids,
                setup.memory_limit_bytes,
            )
        )
        self._compiler.engine("llguidance" if setup.engine == "auto" else setup.engine)

    def compile(self, schema: str) -> tuple[Compiled, PreparedConstraint | None]:
        """What the server would do with the schema, and the grammar where it takes it. Past its
        limits the process ends by a signal."""
        spec = ConstraintSpec("json_schema", schema, self._setup.engine, self._setup.allows_checked)
        verdict = self._compiler.try_out(spec, self._setup.limits)
        prepared = verdict.prepared
        if prepared is None:
            refusal = Compiled(
                "refused",
                verdict.compile_ms,
                reason=verdict.reason or "the constraint cannot be enforced",
                pointer=verdict.pointer,
                keyword=verdict.keyword,
            )
            return refusal, None
        taken = Compiled(
            prepared.enforcement, verdict.compile_ms, prepared.engine, gaps=prepared.gaps
        )
        return taken, prepared

    def walk(self, case: BenchCase, prepared: PreparedConstraint) -> Walked:
        """Every instance of the case through the matcher."""
        matcher = self._compiler.engine(prepared.engine).build(prepared)
        spellings = speller(case.schema, prepared)
        validate = validation(case.schema) if prepared.gaps else _no_validation
        mask_ns = array.array("I")
        outcomes: list[Outcome] = []
        for instance in case.instances:
            try:
                texts = spellings(instance_value(instance.data))
            except Untestable as error:
                outcomes.append(Outcome(None, str(error)))
            else:
                outcomes.append(self._outcome(texts, matcher, validate=validate, mask_ns=mask_ns))
        return Walked(tuple(outcomes), mask_ns.tobytes())

    def notes(self, schema: str, compiled: Compiled) -> Walked:
        return Walked(notes=keyword_notes(schema, compiled))

    def _outcome(
        self,
        texts: Sequence[str],
        matcher: Matcher,
        *,
        validate: Callable[[str], bool],
        mask_ns: "array.array[int]",
    ) -> Outcome:
        """Accepted if the matcher takes one of the texts, and the validation as well. Masks are
        timed along the first: the others go over the same beginning again."""
        reason = ""
        for number, text in enumerate(texts):
            token_ids = self._texts.encode(text)
            if token_ids is None:
                return Outcome(None, "the vocabulary cannot spell it")
            try:
                times = mask_ns if number == 0 else array.array("I")
                if self._walk(matcher.fork(), token_ids, times) and validate(text):
                    return Outcome(True)
            except GrammarError as error:
                reason = str(error)
        return Outcome(False, reason)

    def _walk(self, matcher: Matcher, token_ids: list[int], mask_ns: "array.array[int]") -> bool:
        """Mask, then token, as in a decode step; ends at the first token that is refused."""
        for token_id in token_ids:
            started = time.perf_counter_ns()
            matcher.fill(self._row)
            mask_ns.append(min(time.perf_counter_ns() - started, MAX_NS))
            is_allowed = bool(self._row[token_id // 32] >> (token_id % 32) & 1)
            if not matcher.accept([token_id]):
                if is_allowed:
                    raise MatcherFailed(f"the mask allows token {token_id}, the matcher does not")
                return False
        return matcher.is_accepting()


def validation(schema: str) -> Callable[[str], bool]:
    """The final validation of texts, for schemas that masks enforce in part."""
    validator = AnswerValidator(schema)
    return lambda text: validator.problem(text) is None


def _no_validation(_text: str) -> bool:
    return True


def main() -> None:
    """Serves frames until stdin ends."""
    frames_in = os.fdopen(os.dup(0), "rb")
    frames_out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not mix with the frames
    setup = read_message(frames_in)
    if not isinstance(setup, Setup):
        return
    try:
        worker = BenchWorker(setup)
    except (GrammarError, ImportError) as error:
        _write(frames_out, Broken(str(error)))
        return
    _write(frames_out, Ready())
    while isinstance(job := read_message(frames_in), Job):
        _work(worker, job, frames_out)


def _work(worker: BenchWorker, job: Job, frames_out: BinaryIO) -> None:
    compiled, prepared = worker.compile(job.case.schema)
    _write(frames_out, compiled)
    if job.wants_notes:
        _write(frames_out, worker.notes(job.case.schema, compiled))
    else:
        _write(frames_out, worker.walk(job.case, prepared) if prepared else Walked())


def _write(frames_out: BinaryIO, message: Message) -> None:
    frames_out.write(encode(message))
    frames_out.flush()


if __name__ == "__main__":
    main()
