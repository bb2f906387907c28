"""The side thread that builds matchers."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from grammar.matcher import Vocabulary
from grammar.spec import PreparedConstraint, Reasoning
from runtime.grammar_builder import Build, BuildOutcome, GrammarBuilder
from tests.engine_harness import EOS, VOCAB_SIZE
from tests.fake_grammar import PANIC, UNSUPPORTED, FakeGrammarEngine, prepared, scripted

ROOT = Path(__file__).resolve().parents[3]
ONE, TWO, THREE = scripted([1]), scripted([2]), scripted([3])


class Bench:
    """A builder over a fake engine; `wait` returns once a build is there."""

    def __init__(self) -> None:
        self.engine = FakeGrammarEngine()
        self.rings = threading.Semaphore(0)
        self.builder = GrammarBuilder(
            Vocabulary("{}", VOCAB_SIZE, (EOS,)),
            load=self.engine.load,
            on_ready=self.rings.release,
            cache_size=2,
        )

    def wait(self) -> None:
        assert self.rings.acquire(timeout=5.0), "no build became ready"

    def build(self, spec: PreparedConstraint) -> BuildOutcome:
        build = self.builder.start(spec)
        if build.outcome is None:
            self.wait()
        assert build.outcome is not None
        return build.outcome


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.engine.gate.set()
    bench.builder.close()


def test_a_build_ends_with_a_matcher_and_rings(bench: Bench) -> None:
    outcome = bench.build(ONE)
    assert outcome.matcher is not None
    assert outcome.matcher.fork().forced_tokens() == [1]
    assert outcome.start_ns <= outcome.end_ns


def test_equal_constraints_are_built_once_even_while_one_is_under_way(bench: Bench) -> None:
    bench.engine.gate.clear()
    first, second = bench.builder.start(ONE), bench.builder.start(scripted([1]))
    bench.engine.gate.set()
    bench.wait()
    assert first is second
    assert bench.build(ONE) is first.outcome
    assert bench.engine.compiled == [ONE.grammar]


def test_the_least_recently_asked_for_is_forgotten_first(bench: Bench) -> None:
    for spec in (ONE, TWO, ONE, THREE, ONE, TWO):
        bench.build(spec)
    assert bench.engine.compiled == [ONE.grammar, TWO.grammar, THREE.grammar, TWO.grammar]


def test_a_constraint_that_cannot_be_built_says_why_and_is_tried_again(bench: Bench) -> None:
    spec = prepared(UNSUPPORTED)
    assert bench.build(spec).error == "lookbehind is not supported"
    assert bench.build(spec).matcher is None
    assert bench.engine.compiled == [UNSUPPORTED, UNSUPPORTED]


def test_a_panic_in_the_library_fails_that_build_alone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = bench.build(prepared(PANIC))
    assert outcome.error == "the constraint could not be built: Panic"
    assert "failed" in caplog.text
    assert bench.build(ONE).matcher is not None


def test_a_build_that_nobody_waits_for_is_not_begun(bench: Bench) -> None:
    bench.engine.gate.clear()
    bench.builder.start(ONE)
    dropped: Build = bench.builder.start(TWO)
    bench.builder.start(THREE)
    bench.builder.drop(dropped)
    bench.engine.gate.set()
    bench.wait()
    bench.wait()
    assert bench.engine.compiled == [ONE.grammar, THREE.grammar]
    assert bench.build(TWO).matcher is not None


def test_reasoning_before_the_answer_is_part_of_the_build(bench: Bench) -> None:
    reasoning = Reasoning(end_ids=(7,), is_open=True)
    thinking = bench.build(msgspec.structs.replace(ONE, reasoning=reasoning)).matcher
    answering = bench.build(ONE).matcher
    assert thinking is not None
    assert answering is not None
    assert thinking.accept([5, 7, 1]) == 3
    assert answering.accept([5, 7, 1]) == 0


def test_close_ends_the_thread(bench: Bench) -> None:
    names_before = {thread.name for thread in threading.enumerate()}
    bench.builder.close()
    names_after = {thread.name for thread in threading.enumerate()}
    assert names_before - names_after == {"grammar-builder"}


# Rules that name each other, one within the other; a thread of the usual size dies of 3,000.
DEEP = """
import threading
from grammar.spec import PreparedConstraint
from runtime.grammar_builder import GrammarBuilder
from tests.small_vocabulary import small_vocabulary

names = [f"r{number}" for number in range(NUM_RULES)]
rules = [f'{one}: "a" {other}' for one, other in zip(names, names[1:])]
lark = "\\n".join(["start: r0", *rules, f'{names[-1]}: "b"'])
built = threading.Event()
builder = GrammarBuilder(small_vocabulary(), on_ready=built.set)
build = builder.start(PreparedConstraint("llguidance", "lark", lark))
assert built.wait(15)
print(build.outcome.error)
"""


def test_deeply_nested_rules_do_not_overflow_the_stack() -> None:
    script = DEEP.replace("NUM_RULES", "8000")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr
