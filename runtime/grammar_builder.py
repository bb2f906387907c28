"""Builds matchers on a side thread, so that a slow constraint never holds up a step.

The gateway has probed each constraint in a killable child before (does it compile, how long,
how large); here it is built once, kept, and forked per sequence by the engine loop.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from grammar.ending_matcher import VocabularyBits
from grammar.engines import load_engine
from grammar.errors import GrammarError
from grammar.matcher import GrammarEngine, Matcher, Vocabulary
from grammar.reasoning_matcher import ReasoningMatcher
from grammar.spec import EngineName, PreparedConstraint
from telemetry.logs import stack_of

# llguidance walks nested rules by recursion and dies where the stack ends: at about 2,700 rules on
# the usual 8 MiB. The probe has half of this, so that it dies first.
STACK_BYTES = 128 * 1024 * 1024

EngineLoader = Callable[[EngineName, Vocabulary], GrammarEngine]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BuildOutcome:
    """A matcher in its initial state, or why there is none."""

    matcher: Matcher | None
    error: str | None
    start_ns: int
    end_ns: int


class Build:
    """One constraint on its way to a matcher. `outcome` is None until it is there; it is set
    once, by the side thread, and read by the engine loop."""

    def __init__(self, prepared: PreparedConstraint) -> None:
        self.prepared = prepared
        self.outcome: BuildOutcome | None = None
        self.num_waiting = 0


class GrammarBuilder:
    """`start` and `drop` are called by the engine loop; `on_ready` by the side thread after each
    build, to wake the loop. Finished builds are kept, the least recently asked for go first."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        load: EngineLoader = load_engine,
        on_ready: Callable[[], None] | None = None,
        cache_size: int = 256,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._vocabulary = vocabulary
        self._bits = VocabularyBits(
            vocab_size=vocabulary.vocab_size, eos_token_ids=vocabulary.eos_token_ids
        )
        self._load = load
        self._on_ready = on_ready
        self._cache_size = cache_size
        self._clock = clock
        self._engines: dict[EngineName, GrammarEngine] = {}
        self._builds: OrderedDict[str, Build] = OrderedDict()
        self._lock = threading.Lock()
        self._inbox: SimpleQueue[Build | None] = SimpleQueue()
        # A daemon: a build that hangs in native code must not keep a stopping process alive.
        self._thread = threading.Thread(target=self._run, name="grammar-builder", daemon=True)
        _start_with_stack(self._thread, STACK_BYTES)

    def start(self, prepared: PreparedConstraint) -> Build:
        """The build of this constraint: finished, under way, or queued now."""
        key = prepared.key()
        with self._lock:
            build = self._builds.get(key)
            if build is None:
                build = self._builds[key] = Build(prepared)
                self._inbox.put(build)
            self._builds.move_to_end(key)
            build.num_waiting += 1
            self._trim()
        return build

    def drop(self, build: Build) -> None:
        """One waiting request is gone; a build nobody waits for is not begun."""
        with self._lock:
            build.num_waiting -= 1

    def close(self, *, timeout_s: float = 1.0) -> None:
        """Ends the side thread after the build it is in; waits no longer than the timeout."""
        self._inbox.put(None)
        self._thread.join(timeout_s)

    def _trim(self) -> None:
        finished = (key for key, build in self._builds.items() if build.outcome is not None)
        for key in list(finished)[: max(0, len(self._builds) - self._cache_size)]:
            del self._builds[key]

    def _run(self) -> None:
        while (build := self._inbox.get()) is not None:
            if not self._is_wanted(build):
                continue
            outcome = self._build(build.prepared)
            if outcome.error is not None:
                self._forget(build)
            build.outcome = outcome
            if self._on_ready is not None:
                self._on_ready()

    def _is_wanted(self, build: Build) -> bool:
        """Under the lock, so that a build is either begun or gone from the cache."""
        with self._lock:
            if build.num_waiting == 0:
                del self._builds[build.prepared.key()]
            return build.num_waiting > 0

    def _forget(self, build: Build) -> None:
        """A failure is not kept: it may have been the machine's, not the constraint's."""
        with self._lock:
            del self._builds[build.prepared.key()]

    def _build(self, prepared: PreparedConstraint) -> BuildOutcome:
        start_ns = self._clock()
        matcher: Matcher | None = None
        error: str | None = None
        try:
            matcher = self._matcher(prepared)
        except GrammarError as failure:
            error = str(failure)
        # A panic in a Rust library arrives as a BaseException; it must not end the thread.
        except BaseException as failure:
            # Whatever it says may be of the schema's words.
            fields = {"exception": stack_of(failure)}
            _log.error("building a %s grammar failed", prepared.form, extra=fields)
            error = f"the constraint could not be built: {type(failure).__name__}"
        return BuildOutcome(matcher, error, start_ns=start_ns, end_ns=self._clock())

    def _matcher(self, prepared: PreparedConstraint) -> Matcher:
        matcher = self._engine(prepared.engine).build(prepared)
        if prepared.reasoning is None:
            return matcher
        return ReasoningMatcher(matcher, prepared.reasoning, self._bits)

    def _engine(self, name: EngineName) -> GrammarEngine:
        if name not in self._engines:
            self._engines[name] = self._load(name, self._vocabulary)
        return self._engines[name]


def _start_with_stack(thread: threading.Thread, num_bytes: int) -> None:
    """Starts a thread with a stack of that size, which is only taken as far as it is used."""
    usual = threading.stack_size(num_bytes)
    try:
        thread.start()
    finally:
        threading.stack_size(usual)
