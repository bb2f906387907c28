"""The walk of an instance through a matcher, with matchers that do not keep their word."""

from collections.abc import Sequence
from typing import Any

import pytest

from grammar import bench_worker
from grammar.bench import BenchOptions, setup_of
from grammar.bench_file import BenchCase, Instance
from grammar.bench_frames import Outcome
from grammar.bench_worker import BenchWorker
from grammar.errors import MatcherFailed
from grammar.matcher import MaskRow
from grammar.spec import PreparedConstraint
from tests.small_vocabulary import small_vocabulary

CASE = BenchCase("s", "{}", (Instance("1", is_valid=True),))
PREPARED = PreparedConstraint("xgrammar", "json_schema", "{}")


class Matcher:
    """Allows `mask` (all bits or none), accepts `num_accepted` tokens a call, fails where told."""

    def __init__(self, *, mask: int, num_accepted: int, failure: str | None = None) -> None:
        self._mask = mask
        self._num_accepted = num_accepted
        self._failure = failure

    def fill(self, mask_row: MaskRow) -> None:
        if self._failure:
            raise MatcherFailed(self._failure)
        mask_row[:] = self._mask

    def accept(self, _token_ids: Sequence[int]) -> int:
        return self._num_accepted

    def is_accepting(self) -> bool:
        return True

    def fork(self) -> "Matcher":
        return self


class Compiler:
    """Stands for the probe's worker and for its only engine."""

    matcher: Matcher

    def __init__(self, _setup: object) -> None: ...

    def engine(self, _name: str) -> Any:
        return self

    def build(self, _prepared: PreparedConstraint) -> Matcher:
        return self.matcher


def outcome_of(matcher: Matcher, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    monkeypatch.setattr(bench_worker, "ProbeWorker", Compiler)
    monkeypatch.setattr(Compiler, "matcher", matcher, raising=False)
    worker = BenchWorker(setup_of(small_vocabulary(), BenchOptions()))
    (outcome,) = worker.walk(CASE, PREPARED).outcomes
    return outcome


def test_the_matcher_decides_where_the_mask_has_another_spelling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert outcome_of(Matcher(mask=0, num_accepted=1), monkeypatch) == Outcome(True)
    assert outcome_of(Matcher(mask=0, num_accepted=0), monkeypatch) == Outcome(False)


def test_a_token_that_the_mask_allows_and_the_matcher_refuses_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome = outcome_of(Matcher(mask=-1, num_accepted=0), monkeypatch)
    assert outcome.is_accepted is False
    assert "the mask allows token" in outcome.reason


def test_a_matcher_that_gives_up_has_rejected_the_instance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome = outcome_of(Matcher(mask=-1, num_accepted=1, failure="too deep"), monkeypatch)
    assert outcome == Outcome(False, "too deep")
