"""A bench over real children: what is counted, and that a lost child costs one schema."""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from grammar import bench, bench_child
from grammar.bench import BenchOptions, CaseResult, run_bench, setup_of
from grammar.bench_child import BenchChild, ChildDied, DeadlinePassed
from grammar.bench_file import BenchCase, Instance
from grammar.bench_frames import Compiled, Setup, Walked
from grammar.errors import GrammarError
from grammar.matcher import Vocabulary
from tests.small_vocabulary import small_vocabulary

CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def case(name: str, schema: object, *tests: tuple[Any, bool]) -> BenchCase:
    instances = [Instance(json.dumps(value), is_valid) for value, is_valid in tests]
    return BenchCase(name, json.dumps(schema), tuple(instances))


def run(*cases: BenchCase, **options: Any) -> list[CaseResult]:
    seen: list[CaseResult] = []
    bench_options = BenchOptions(**options)
    results = run_bench(cases, small_vocabulary(), bench_options, on_result=seen.append)
    assert sorted(result.id for result in seen) == sorted(result.id for result in results)
    return results


def test_instances_are_judged_by_the_mask_whatever_the_order_of_their_keys() -> None:
    right = case(
        "right", CLOSED, ({"b": "x", "a": 1}, True), ({"a": "1"}, False), ({"c": 1}, False)
    )
    labels_swapped = case("wrong", CLOSED, ({"b": "x", "a": 1}, False), ({"a": "1"}, True))
    (first, second) = run(right, labels_swapped)
    assert (first.ending, first.engine) == ("enforced", "llguidance")
    assert (first.false_accepts, first.false_rejects) == ((), ())
    assert (second.false_accepts, second.false_rejects) == ((0,), (1,))


def test_a_mask_is_timed_before_each_token_until_one_is_refused() -> None:
    (result,) = run(case("s", {"enum": ["xyz"]}, ("xyz", True), ("xab", False)))
    assert len(result.mask_ns) == len('"xyz"') + len('"xa')
    assert 0 < result.compile_ms < 1000
    assert all(result.mask_ns > 0)


def test_an_instance_that_only_begins_an_output_is_not_accepted() -> None:
    (result,) = run(case("s", {"const": 12}, (12, True), (1, False)))
    assert (result.false_accepts, result.false_rejects) == ((), ())


def test_refusals_have_a_place_and_untestable_instances_a_reason() -> None:
    surrogate = BenchCase("odd", '{"type":"string"}', (Instance('"\\ud800"', is_valid=True),))
    (refused, odd) = run(case("no", {"properties": {"a": {"minimum": "x"}}}, (1, True)), surrogate)
    assert (refused.ending, refused.pointer) == ("refused", "/properties/a/minimum")
    assert (refused.false_rejects, refused.num_instances) == ((), 0)
    assert (odd.untestable, odd.false_rejects) == (("it has a lone surrogate",), ())


def test_scalars_and_booleans_are_schemas_and_instances_as_well() -> None:
    results = run(case("any", True, (1, True), (None, True), ("a", True)), case("bad", 3))
    assert [result.ending for result in results] == ["enforced", "refused"]
    assert results[0].false_rejects == ()


def test_several_children_give_the_results_in_the_order_of_the_file() -> None:
    cases = [case(f"case {n}", {"const": n}, (n, True), (n + 1, False)) for n in range(12)]
    results = run(*cases, num_children=3)
    assert [result.id for result in results] == [case.id for case in cases]
    assert all(not result.false_accepts and not result.false_rejects for result in results)


def test_a_schema_past_the_deadline_is_refused_and_the_next_one_is_tried() -> None:
    slow = {f"p{i}": {"type": "string", "pattern": f"a{i}"} for i in range(3000)}
    slow_case = case("slow", {"type": "object", "properties": slow}, ({}, True))
    (late, next_one) = run(slow_case, case("next", {"const": 1}, (1, True)), time_limit_s=0.05)
    assert (late.ending, late.is_too_complex, late.compile_ms) == ("refused", True, 50.0)
    assert "too complex: it takes more than 0.05 s" in late.reason
    assert next_one.ending == "enforced"


class LosableChild:
    """A child that is lost at the schema "compile" or at the walk of the schema "walk"."""

    num_started = 0

    def __init__(self, _setup: object) -> None:
        LosableChild.num_started += 1
        self._schema = ""

    def compile(self, case: BenchCase) -> Compiled:
        self._schema = case.schema
        if self._schema == '"compile"':
            raise ChildDied("killed by signal 11")
        return Compiled("enforced", 1.0)

    def walked(self) -> Walked:
        if self._schema == '"walk"':
            raise DeadlinePassed("more than 60 s")
        return Walked()

    def kill(self) -> None: ...

    def interrupt(self) -> None: ...


def test_a_crash_or_a_hang_costs_only_its_own_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "BenchChild", LosableChild)
    results = run(*[case(name, name) for name in ("a", "compile", "b", "walk", "c")])
    endings = [result.ending for result in results]
    assert endings == ["enforced", "crashed", "enforced", "crashed", "enforced"]
    assert results[1].reason == "while it was compiled: killed by signal 11"
    assert results[3].reason == "while masks were filled: more than 60 s"
    assert LosableChild.num_started == 3


def test_an_error_of_the_caller_ends_all_children(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[BenchChild] = []

    def recording(setup: Setup) -> BenchChild:
        started.append(BenchChild(setup))
        return started[-1]

    def stop(_result: CaseResult) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "BenchChild", recording)
    cases = [case(str(n), {"const": n}) for n in range(10)]
    with pytest.raises(KeyboardInterrupt):
        run_bench(cases, small_vocabulary(), BenchOptions(num_children=2), on_result=stop)
    assert started
    assert all(child.is_ended for child in started)


@pytest.fixture
def child() -> Iterator[BenchChild]:
    child = BenchChild(setup_of(small_vocabulary(), BenchOptions(time_limit_s=0.1)))
    yield child
    child.kill()


def test_a_killed_child_is_told_from_a_stuck_one(
    child: BenchChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_child, "LOAD_LIMIT_S", 0.0)
    os.kill(child.pid, signal.SIGSTOP)
    with pytest.raises(DeadlinePassed):
        child.compile(case("s", {}))
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildDied, match="signal 9"):
        child.walked()


def test_an_engine_that_cannot_be_loaded_is_an_error() -> None:
    broken = Vocabulary('{"model": {}}', 10, (0,))
    with pytest.raises(GrammarError):
        run_bench([case("s", {})], broken, BenchOptions(), on_result=lambda _: None)
