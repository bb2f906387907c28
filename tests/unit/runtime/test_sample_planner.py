"""The plan by which the executor samples."""

import json
from itertools import count
from typing import Any

import numpy as np

from runtime.finish_rules import FinishRules
from runtime.messages import Sampling
from runtime.request import Sequence
from runtime.sample_planner import SamplePlanner
from tests.engine_harness import EOS, VOCAB_SIZE, make_sequence
from tests.fake_grammar import BrokenMatcher, ScriptMatcher, scripted


def make_planner() -> SamplePlanner:
    rules = FinishRules(frozenset({EOS}), max_model_len=1000)
    ticks = count(step=250)
    return SamplePlanner(rules, vocab_size=VOCAB_SIZE, max_rows=4, timer=lambda: next(ticks))


def constrained(
    *allowed: list[int], key: int = 0, first_forbidden: tuple[int, ...] = ()
) -> Sequence:
    sequence = make_sequence([1, 2], key=key, first_forbidden=first_forbidden)
    script = json.loads(scripted(*allowed).grammar)
    sequence.matcher = ScriptMatcher(script["allowed"], script["accepting_from"])
    return sequence


def bits(row: np.ndarray) -> list[int]:
    return [one for one in range(32 * len(row)) if int(row[one // 32]) >> (one % 32) & 1]


def test_only_constrained_rows_have_masks_numbered_in_order() -> None:
    free = make_sequence([1], key=1)
    plan = make_planner().plan([free, constrained([3, 31, 40], key=2), constrained([5], key=3)])
    assert [row.mask for row in plan.rows] == [None, 0, 1]
    assert plan.masks is not None
    assert [bits(row) for row in plan.masks] == [[3, 31, 40], [5]]


def test_without_constraints_there_is_no_mask_array() -> None:
    assert make_planner().plan([make_sequence([1])]).masks is None


def test_a_broken_matcher_leaves_its_row_empty_and_the_others_whole() -> None:
    broken = make_sequence([1], key=1)
    broken.matcher = BrokenMatcher([[1]], 1)
    plan = make_planner().plan([broken, constrained([5], key=2)])
    assert plan.masks is not None
    assert [bits(row) for row in plan.masks] == [[], [5]]


def test_mask_time_is_added_to_the_sequence() -> None:
    sequence, planner = constrained([5]), make_planner()
    planner.plan([sequence])
    planner.plan([sequence])
    assert sequence.phases.mask_time_ns == 500


def test_a_row_carries_the_history_only_for_penalties_that_need_it() -> None:
    rows = []
    for sampling in (
        Sampling(max_tokens=9),
        Sampling(max_tokens=9, presence_penalty=0.5),
        Sampling(max_tokens=9, frequency_penalty=-0.5),
        Sampling(max_tokens=9, repetition_penalty=1.2),
    ):
        sequence = make_sequence([1, 2], sampling=sampling)
        sequence.token_ids += [7]
        (row,) = make_planner().plan([sequence]).rows
        rows.append((row.prompt_ids, row.output_ids))
    assert rows == [((), ()), ((), (7,)), ((), (7,)), ((1, 2), (7,))]


def test_noise_depends_on_the_choice_and_the_number_of_generated_tokens() -> None:
    sequence = make_sequence([1, 2], choice=3)
    sequence.token_ids += [7, 8]
    (row,) = make_planner().plan([sequence]).rows
    assert (row.choice, row.position) == (3, 2)


def test_forbidden_ids_follow_the_sequence() -> None:
    sequence = make_sequence([1], sampling=Sampling(max_tokens=9, min_tokens=1))
    planner = make_planner()
    assert planner.plan([sequence]).rows[0].forbid_ids == (EOS,)
    sequence.token_ids += [7]
    assert planner.plan([sequence]).rows[0].forbid_ids == ()


def test_what_may_not_come_first_is_out_of_the_mask_for_one_token() -> None:
    sequence = constrained([3, 31, 40], [3, 31], first_forbidden=(31, 50))
    planner = make_planner()
    plan = planner.plan([sequence])
    assert plan.masks is not None
    assert bits(plan.masks[0]) == [3, 40]
    assert plan.rows[0].forbid_ids == (EOS,)
    sequence.token_ids += [3]
    assert sequence.matcher is not None
    assert sequence.matcher.accept([3]) == 1
    plan = planner.plan([sequence])
    assert plan.masks is not None
    assert bits(plan.masks[0]) == [3, 31]


def test_what_may_not_come_first_is_forbidden_beside_what_is_forbidden_anyway() -> None:
    sampling = Sampling(max_tokens=9, min_tokens=2)
    sequence = make_sequence([1], sampling=sampling, first_forbidden=(7, 5))
    planner = make_planner()
    assert planner.plan([sequence]).rows[0].forbid_ids == (5, 7, EOS)
    sequence.token_ids += [6]
    assert planner.plan([sequence]).rows[0].forbid_ids == (EOS,)


def limited(key: int, matcher: ScriptMatcher | None = None, **limits: Any) -> Sequence:
    sequence = make_sequence([1], key=key, sampling=Sampling(max_tokens=9, **limits))
    sequence.matcher = matcher
    return sequence


def test_what_a_client_allows_is_a_mask_without_what_is_forbidden() -> None:
    """Nothing gives way there: an unconstrained row of which nothing is left gets no token."""
    plan = make_planner().plan(
        [
            limited(1, allowed_token_ids=(3, 31, 40, EOS)),
            limited(2, allowed_token_ids=(3, EOS), bad_words=((3,),), min_tokens=1),
            limited(3, bad_words=((3,), (40,))),
        ]
    )
    assert plan.masks is not None
    assert [bits(row) for row in plan.masks] == [[3, 31, 40, EOS], []]
    assert [row.mask for row in plan.rows] == [0, 1, None]
    assert [row.forbid_ids for row in plan.rows] == [(), (), (3, 40)]


def test_of_a_grammars_mask_what_the_client_allows_is_left() -> None:
    """What is forbidden gives way to the grammar, so the sampler has to know of both."""
    script = ScriptMatcher([[3, 31, 40], [5]], 2)
    sequence = limited(1, script, allowed_token_ids=(31, 40, 50), bad_words=((40,),))
    plan = make_planner().plan([sequence])
    assert plan.masks is not None
    assert bits(plan.masks[0]) == [31, 40]
    assert plan.rows[0].forbid_ids == (40,)


def test_without_its_grammars_mask_a_row_keeps_to_what_the_client_allows() -> None:
    sequence = make_sequence(
        [1], sampling=Sampling(max_tokens=9, allowed_token_ids=(3, 5)), first_forbidden=(5,)
    )
    sequence.matcher = ScriptMatcher([[3, 31, 40], [5]], 2)
    plan = make_planner().plan([sequence], without_mask=[sequence])
    assert plan.masks is not None
    assert bits(plan.masks[0]) == [3]
    assert sequence.phases.mask_time_ns == 0
