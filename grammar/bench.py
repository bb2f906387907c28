"""Runs a file of schemas and instances through the engines: how much is enforced, what is wrongly
accepted or rejected, and what compiling and masks cost. Behind `radixgate grammar bench`.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from grammar.bench_child import BenchChild, ChildDied, DeadlinePassed
from grammar.bench_file import BenchCase
from grammar.bench_frames import Compiled, Setup, Treatment, Walked
from grammar.matcher import Vocabulary
from grammar.probe_frames import TimeLimits
from grammar.spec import EngineChoice, Gap

# A deadline counts computing, so that a busy machine refuses nothing; but what sleeps must end too.
WALL_FACTOR = 5
MEMORY_LIMIT_BYTES = 1024 * 1024 * 1024

Ending = Literal[Treatment, "crashed"]
NO_MASKS: npt.NDArray[np.uint32] = np.empty(0, dtype=np.uint32)


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """`time_limit_s` is for compiling one schema; `num_children` work side by side."""

    engine: EngineChoice = "auto"
    allows_checked: bool = True
    time_limit_s: float = 2.0
    num_children: int = 1


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How one case ended. Instances are named by their index in the case.

    `compile_ms` is the deadline where that was passed; `mask_ns` has one entry a mask.
    """

    id: str
    ending: Ending
    compile_ms: float = 0.0
    engine: str = ""
    gaps: tuple[Gap, ...] = ()
    reason: str = ""
    pointer: str = ""
    keyword: str | None = None
    num_instances: int = 0
    is_too_complex: bool = False
    false_accepts: tuple[int, ...] = ()
    false_rejects: tuple[int, ...] = ()
    untestable: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    mask_ns: npt.NDArray[np.uint32] = field(default_factory=lambda: NO_MASKS)


def setup_of(vocabulary: Vocabulary, options: BenchOptions) -> Setup:
    """The first frame to a child."""
    return Setup(
        vocabulary.tokenizer_json,
        vocabulary.vocab_size,
        vocabulary.eos_token_ids,
        options.engine,
        options.allows_checked,
        MEMORY_LIMIT_BYTES,
        TimeLimits(options.time_limit_s, WALL_FACTOR * options.time_limit_s),
    )


def run_bench(
    cases: Sequence[BenchCase],
    vocabulary: Vocabulary,
    options: BenchOptions,
    *,
    on_result: Callable[[CaseResult], None],
) -> list[CaseResult]:
    """The results in the order of the cases; `on_result` gets each as it comes, one at a time.

    Raises: GrammarError where no child can be started.
    """
    setup = setup_of(vocabulary, options)
    queue = _Queue(cases, on_result)
    num_children = max(1, min(options.num_children, len(cases)))
    with ThreadPoolExecutor(num_children) as pool:
        threads = [pool.submit(_work, queue, setup, options) for _ in range(num_children)]
        try:
            for thread in threads:
                thread.result()
        finally:
            queue.close()
    return queue.results()


class _Queue:
    """Hands the cases out to the threads and collects what they found."""

    def __init__(self, cases: Sequence[BenchCase], on_result: Callable[[CaseResult], None]) -> None:
        self._lock = threading.Lock()
        self._cases = iter(list(enumerate(cases)))
        self._results: dict[int, CaseResult] = {}
        self._on_result = on_result
        self._children: set[BenchChild] = set()
        self._is_closed = False

    def __iter__(self) -> Iterator[tuple[int, BenchCase]]:
        return self

    def __next__(self) -> tuple[int, BenchCase]:
        with self._lock:
            if self._is_closed:
                raise StopIteration
            return next(self._cases)

    def put(self, index: int, result: CaseResult) -> None:
        with self._lock:
            self._results[index] = result
            self._on_result(result)

    def start_child(self, setup: Setup) -> BenchChild:
        child = BenchChild(setup)
        with self._lock:
            self._children.add(child)
        return child

    def end_child(self, child: BenchChild) -> None:
        child.kill()
        with self._lock:
            self._children.discard(child)

    def close(self) -> None:
        """No more cases; whoever works on one loses its child, so that nobody waits for it."""
        with self._lock:
            self._is_closed = True
            for child in self._children:
                child.interrupt()

    def results(self) -> list[CaseResult]:
        return [self._results[index] for index in sorted(self._results)]


def _work(queue: _Queue, setup: Setup, options: BenchOptions) -> None:
    """One thread: its child takes cases until there are no more."""
    child: BenchChild | None = None
    try:
        for index, case in queue:
            child = child or queue.start_child(setup)
            result, is_alive = _run_case(child, case, options)
            queue.put(index, result)
            if not is_alive:
                queue.end_child(child)
                child = None
    except BaseException:
        queue.close()
        raise
    finally:
        if child is not None:
            queue.end_child(child)


def _run_case(child: BenchChild, case: BenchCase, options: BenchOptions) -> tuple[CaseResult, bool]:
    """The result, and whether the child can go on."""
    try:
        compiled = child.compile(case)
    except DeadlinePassed as error:
        reason = f"too complex: it takes {error} to compile"
        limit_ms = options.time_limit_s * 1e3
        return CaseResult(case.id, "refused", limit_ms, reason=reason, is_too_complex=True), False
    except ChildDied as error:
        return CaseResult(case.id, "crashed", reason=f"while it was compiled: {error}"), False
    try:
        walked = child.walked()
    except (DeadlinePassed, ChildDied) as error:
        return CaseResult(case.id, "crashed", reason=f"while masks were filled: {error}"), False
    return _result(case, compiled, walked), True


def _result(case: BenchCase, compiled: Compiled, walked: Walked) -> CaseResult:
    judged = [
        (index, instance.is_valid, outcome)
        for index, (instance, outcome) in enumerate(
            zip(case.instances, walked.outcomes, strict=False)
        )
    ]
    return CaseResult(
        case.id,
        compiled.treatment,
        compiled.compile_ms,
        engine=compiled.engine,
        gaps=compiled.gaps,
        reason=compiled.reason,
        pointer=compiled.pointer,
        keyword=compiled.keyword,
        num_instances=len(judged),
        false_accepts=tuple(i for i, valid, o in judged if o.is_accepted and not valid),
        false_rejects=tuple(i for i, valid, o in judged if o.is_accepted is False and valid),
        untestable=tuple(o.reason for _, _, o in judged if o.is_accepted is None),
        failures=tuple(o.reason for _, _, o in judged if o.is_accepted is False and o.reason),
        mask_ns=np.frombuffer(walked.mask_ns, dtype=np.uint32),
    )
