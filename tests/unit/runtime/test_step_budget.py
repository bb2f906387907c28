"""What the estimates make of measured steps, and what prefill is allowed after them."""

import pytest

from runtime.batch import PageId, RowKey, ScheduledBatch, ScheduledRow
from runtime.step_budget import (
    FAVOURED_SHARE,
    MAX_STEPS_UNMEASURED,
    MIN_PREFILL_TOKENS,
    DecodeCost,
    PrefillCost,
    StepBudget,
    StepShape,
)

MS = 1_000_000
DECODE = StepShape(num_decode_rows=8, num_prefill_tokens=0, prefill_context=0.0)


def mixed(num_tokens: int, *, context: int = 0, num_rows: int = 8) -> StepShape:
    return StepShape(num_rows, num_tokens, num_tokens * (context + num_tokens / 2))


def measured_budget(*, token_ns: int = MS // 2, num_rows: int = 8) -> StepBudget:
    """Decode takes 20 ms; a prefill token takes `token_ns`; long chunks were seen."""
    budget = StepBudget(512)
    for _ in range(5):
        budget.observe(StepShape(num_rows, 0, 0.0), 20 * MS)
    for num_tokens in (128, 256, 512):
        budget.observe(mixed(num_tokens, num_rows=num_rows), 20 * MS + num_tokens * token_ns)
    return budget


def test_a_shape_counts_rows_of_one_token_as_decode() -> None:
    def row(start: int, num_tokens: int) -> ScheduledRow:
        return ScheduledRow(RowKey(start), (1,) * num_tokens, start, (PageId(0),), ())

    shape = StepShape.of(ScheduledBatch(0, (row(7, 1), row(10, 4), row(100, 2))))
    assert shape == StepShape(1, 6, prefill_context=4 * 12 + 2 * 101)


def test_rows_that_decode_count_as_one_whatever_was_forced() -> None:
    rows = (
        ScheduledRow(RowKey(1), (1, 2, 3), 10, (), (2,)),
        ScheduledRow(RowKey(2), (1,), 5, (), (0,)),
    )
    shape = StepShape.of(ScheduledBatch(0, rows), decoding={RowKey(1)})
    assert shape == StepShape(2, 0, prefill_context=0.0)


def test_a_decode_estimate_ignores_a_few_steps_that_were_held_up() -> None:
    cost = DecodeCost()
    for elapsed_ns in (10, 11, 900, 10, 900):
        cost.observe(8, elapsed_ns)
    assert cost.estimate_ns(8) == 11


def test_a_decode_estimate_for_other_numbers_of_rows_is_rather_too_little() -> None:
    cost = DecodeCost()
    cost.observe(8, 16 * MS)
    assert (cost.estimate_ns(16), cost.estimate_ns(2)) == (16 * MS, 4 * MS)


def test_a_decode_estimate_is_of_the_nearest_number_of_rows() -> None:
    cost = DecodeCost()
    for _ in range(5):
        cost.observe(2, 10 * MS)
    for _ in range(5):
        cost.observe(16, 30 * MS)
    assert (cost.estimate_ns(2), cost.estimate_ns(16)) == (10 * MS, 30 * MS)


def test_a_prefill_estimate_tells_a_tokens_own_cost_from_that_of_its_context() -> None:
    cost = PrefillCost()
    for context in (0, 500, 3_000, 1_000):
        shape = mixed(64, context=context)
        added_ns = 1_000 * 64 + 3 * shape.prefill_context
        cost.observe(shape, added_ns=added_ns, elapsed_ns=round(added_ns) + 5_000)
    assert cost.token_ns(0) == pytest.approx(1_000, rel=1e-6)
    assert cost.token_ns(4_000) == pytest.approx(13_000, rel=1e-6)


def test_no_part_of_a_prefill_estimate_is_negative() -> None:
    cheaper_later, free_at_first = PrefillCost(), PrefillCost()
    for context, early, late in ((0, 900, 10), (4_000, 100, 900)):
        shape = mixed(64, context=context)
        cheaper_later.observe(shape, added_ns=early * 64, elapsed_ns=100_000)
        free_at_first.observe(shape, added_ns=late * 64 * context / 100, elapsed_ns=10_000_000)
    for cost in (cheaper_later, free_at_first):
        assert 0 <= cost.token_ns(0) <= cost.token_ns(4_000)


def test_prefill_gets_as_long_as_the_decode_rows_take() -> None:
    allowance = measured_budget().allow(num_decode_rows=8, num_prompts=1)
    assert allowance.num_tokens(0) == pytest.approx(40, abs=1)


def test_many_prompts_beside_few_rows_get_more() -> None:
    num_tokens = [
        measured_budget(num_rows=2).allow(num_decode_rows=2, num_prompts=prompts).num_tokens(0)
        for prompts in (1, 3, 14)
    ]
    assert num_tokens == pytest.approx([80, 240, 320], abs=2)


def test_chunks_of_one_step_share_its_allowance() -> None:
    allowance = measured_budget().allow(num_decode_rows=8, num_prompts=1)
    first = allowance.num_tokens(0)
    allowance.spend(first - 10, 0)
    assert allowance.num_tokens(0) == 10
    allowance.spend(10, 0)
    assert allowance.num_tokens(0) == 0


def test_a_favoured_prompt_gets_several_times_as_long_and_all_others_nothing_beside_it() -> None:
    allowance = measured_budget().allow(num_decode_rows=8, num_prompts=1)
    favoured = allowance.num_tokens(0, is_favoured=True)
    assert favoured == pytest.approx(40 * FAVOURED_SHARE, abs=4)
    allowance.spend(20, 0, is_favoured=True)
    assert allowance.num_tokens(0) == 0
    assert allowance.num_tokens(0, is_favoured=True) == favoured - 20


def test_a_favoured_prompt_that_was_not_placed_leaves_the_others_theirs() -> None:
    allowance = measured_budget().allow(num_decode_rows=8, num_prompts=1)
    allowance.spend(0, 0, is_favoured=True)
    assert allowance.num_tokens(0) == pytest.approx(40, abs=1)


def test_to_be_favoured_is_no_loss_where_all_get_much() -> None:
    allowance = measured_budget(num_rows=2).allow(num_decode_rows=2, num_prompts=14)
    assert allowance.num_tokens(0, is_favoured=True) == allowance.num_tokens(0)


def test_prefill_progresses_however_dear_it_is() -> None:
    allowance = measured_budget(token_ns=100 * MS).allow(num_decode_rows=8, num_prompts=1)
    assert allowance.num_tokens(0) == MIN_PREFILL_TOKENS


def test_the_floor_is_for_the_first_chunk_of_a_step() -> None:
    allowance = measured_budget(token_ns=100 * MS).allow(num_decode_rows=8, num_prompts=1)
    allowance.spend(4, 0)
    assert allowance.num_tokens(0) == 0


def test_decode_rows_and_prefill_stay_within_the_token_budget() -> None:
    allowance = measured_budget(token_ns=1).allow(num_decode_rows=8, num_prompts=1)
    assert allowance.num_tokens(0) == 504


def test_without_decode_rows_the_whole_budget_is_for_prefill() -> None:
    for budget in (StepBudget(512), measured_budget(token_ns=100 * MS)):
        assert budget.allow(num_decode_rows=0, num_prompts=1).num_tokens(0) == 512


def test_a_step_of_decode_rows_alone_is_measured_first() -> None:
    budget = StepBudget(512)
    assert budget.allow(num_decode_rows=8, num_prompts=1).num_tokens(0) == 0
    budget.observe(DECODE, 20 * MS)
    assert budget.allow(num_decode_rows=8, num_prompts=1).num_tokens(0) > 0


def test_chunks_grow_by_doubling_while_nothing_is_known_of_their_cost() -> None:
    budget = StepBudget(512)
    budget.observe(DECODE, 20 * MS)
    chunks = []
    for _ in range(6):
        chunks.append(budget.allow(num_decode_rows=8, num_prompts=1).num_tokens(0))
        budget.observe(mixed(chunks[-1]), 20 * MS)
    assert chunks == [32, 64, 128, 256, 504, 504]


def test_decode_rows_alone_are_measured_again_and_again() -> None:
    budget = measured_budget()
    probes = []
    for step in range(4 * MAX_STEPS_UNMEASURED):
        num_tokens = budget.allow(num_decode_rows=8, num_prompts=1).num_tokens(0)
        if num_tokens == 0:
            probes.append(step)
        shape = mixed(num_tokens) if num_tokens else DECODE
        budget.observe(shape, 20 * MS + num_tokens * MS // 2)
    assert probes == [32, 65, 98]


def test_many_more_rows_than_were_measured_are_measured() -> None:
    budget = measured_budget(num_rows=4)
    for _ in range(4):
        assert budget.allow(num_decode_rows=5, num_prompts=1).num_tokens(0) > 0
    assert budget.allow(num_decode_rows=8, num_prompts=1).num_tokens(0) == 0


def test_a_clock_that_stands_still_neither_stops_prefill_nor_fails() -> None:
    budget = StepBudget(512)
    allowed = []
    for _ in range(40):
        allowed.append(budget.allow(num_decode_rows=8, num_prompts=1).num_tokens(0))
        budget.observe(mixed(allowed[-1]) if allowed[-1] else DECODE, 0)
    assert sum(1 for num_tokens in allowed if num_tokens) >= 30
