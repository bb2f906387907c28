"""What the scheduler does where several tenants have work, and what it counts for whom."""

import pytest

from runtime.fairness import INPUT_WEIGHT, OUTPUT_WEIGHT
from runtime.phases import QueueReason
from runtime.request import Sequence, SequenceState
from tests.engine_harness import make_sequence
from tests.unit.runtime.scheduler_bench import Bench, shares


def served(bench: Bench, tenant: str) -> float:
    return bench.scheduler.accounts[tenant].served


def flooded(
    *, num_running: int = 4, num_waiting: int = 2, num_pages: int = 64, num_steps: int = 40
) -> tuple[Bench, list[Sequence]]:
    """All slots are tenant a's, which has decoded for long, and has some more that wait."""
    bench = Bench(num_pages=num_pages, budget=200, max_running=num_running)
    sequences = [bench.add(10, key=key, tenant="a") for key in range(num_running + num_waiting)]
    for _ in range(num_steps):
        bench.step()
    return bench, sequences


def test_a_prompt_counts_as_it_is_computed_and_an_answer_as_it_is_sampled() -> None:
    bench = Bench(budget=32)
    bench.add(70, key=0, tenant="a")
    seen = []
    for _ in range(4):
        bench.step()
        seen.append(served(bench, "a"))
    whole = 70 * INPUT_WEIGHT
    assert seen == [32, 64, whole + OUTPUT_WEIGHT, whole + 2 * OUTPUT_WEIGHT]


def test_what_is_found_in_the_cache_counts_nothing() -> None:
    bench = Bench(budget=200)
    bench.scheduler.end(bench.run_once(60, key=7))
    again = make_sequence([7, *range(49), 80, 81], key=8, tenant="b")
    bench.scheduler.add(again)
    before = served(bench, "b")
    bench.step()
    assert served(bench, "b") - before == 2 * INPUT_WEIGHT + OUTPUT_WEIGHT


def test_forced_tokens_count_as_input() -> None:
    bench = Bench(budget=200)
    sequence = bench.add(5, key=0, tenant="a")
    bench.step()
    before = served(bench, "a")
    sequence.token_ids += [91] * 6
    bench.step()
    assert served(bench, "a") - before == 6 * INPUT_WEIGHT + OUTPUT_WEIGHT


def test_what_is_computed_again_counts_nothing_again() -> None:
    bench = Bench(num_pages=4, budget=200)
    bench.expect_short_answers()
    first, second = bench.add(30, key=0, tenant="a"), bench.add(30, key=1, tenant="a")
    for _ in range(5):
        bench.step()
    before = served(bench, "a")
    bench.scheduler.end(first)
    bench.step()
    assert second.num_recomputed_tokens > 0
    # The token that was sampled last before the preemption had not been computed.
    assert served(bench, "a") - before == INPUT_WEIGHT + OUTPUT_WEIGHT


def test_who_was_served_least_is_first_whatever_others_have_to_compute() -> None:
    bench = Bench(budget=64)
    bench.add(100, key=0, tenant="a")
    bench.add(60, key=1, tenant="b")
    assert shares(bench.step()) == [(0, 64)]
    bench.add(3, key=2, tenant="a")
    assert shares(bench.step()) == [(1, 60), (2, 3), (0, 1)]


def test_a_newcomer_takes_a_slot_of_the_flood_in_its_first_step() -> None:
    bench, sequences = flooded()
    newcomer = bench.add(20, key=50, tenant="b")
    step = bench.step()
    assert shares(step) == [(0, 1), (1, 1), (2, 1), (50, 20)]
    assert (newcomer.state, sequences[3].state) == (SequenceState.RUNNING, SequenceState.WAITING)
    assert (bench.counters.fair_preemptions, bench.counters.preemptions) == (1, 0)


def test_who_has_given_a_slot_up_waits_for_one() -> None:
    bench, sequences = flooded(num_waiting=0)
    bench.add(20, key=50, tenant="b")
    bench.step()
    assert sequences[3].phases.queue_reason is QueueReason.SLOTS


def test_who_was_preempted_comes_back_first_and_finds_its_pages() -> None:
    bench, sequences = flooded()
    newcomer = bench.add(20, key=50, tenant="b")
    bench.step()
    bench.scheduler.end(newcomer)
    (row,) = [row for row in bench.step().batch.rows if row.key == sequences[3].key]
    assert row.start == len(sequences[3].token_ids) - 2
    assert [one.state for one in sequences[4:]] == [SequenceState.WAITING] * 2


def test_a_slot_comes_from_who_was_preempted_least_and_has_least_to_lose() -> None:
    bench, sequences = flooded(num_steps=1)
    bench.scheduler.end(sequences[2])
    for _ in range(30):
        bench.step()
    # The latest has the least, but for the third newcomer both were preempted already.
    order = [sequences[4], sequences[3], sequences[1]]
    for number, expected in enumerate(order):
        newcomer = bench.add(5, key=50 + number, tenant="b")
        bench.step()
        assert expected.state is SequenceState.WAITING
        bench.scheduler.end(newcomer)
        for _ in range(40):
            bench.step()


def test_the_first_of_a_tenant_is_never_the_one_that_goes() -> None:
    bench, sequences = flooded(num_running=2)
    for number in range(6):
        newcomer = bench.add(5, key=50 + number, tenant="b")
        bench.step()
        assert newcomer.state is SequenceState.RUNNING
        bench.scheduler.end(newcomer)
        for _ in range(30):
            bench.step()
    assert sequences[0].phases.num_preemptions == 0


def test_one_place_a_step_is_taken() -> None:
    bench = Bench(num_pages=12, budget=200, max_running=3)
    bench.expect_short_answers()
    for key in range(3):
        bench.add(50, key=key, tenant="a")
    bench.step()
    newcomer = bench.add(100, key=50, tenant="b")
    seen = []
    for _ in range(3):
        bench.step()
        seen.append((bench.counters.fair_preemptions, newcomer.state is SequenceState.RUNNING))
    assert seen == [(1, False), (2, True), (2, True)]


def with_little_credit() -> tuple[Bench, list[Sequence]]:
    """All slots are tenant a's, with 49 cached tokens each; hardly more were computed at all."""
    bench = Bench(budget=200, max_running=4)
    bench.scheduler.end(bench.run_once(49, key=7))
    sequences = [make_sequence([7, *range(48), 80 + key], key=key, tenant="a") for key in range(4)]
    for sequence in sequences:
        bench.scheduler.add(sequence)
    bench.step()
    for key in (20, 21):
        bench.add(1, key=key, tenant=f"b{key}")
    return bench, sequences


def test_a_place_is_taken_only_while_new_tokens_pay_for_it() -> None:
    bench, _ = with_little_credit()
    seen = []
    while bench.counters.fair_preemptions < 2:
        bench.step()
        seen.append(bench.counters.fair_preemptions)
    # Four new tokens a step pay for 51 of the second victim, which gets one more each.
    assert seen[0] == 1
    assert 51 // 4 < len(seen) <= 51 // (4 - 1) + 1


def test_what_is_not_to_be_computed_again_need_not_be_paid() -> None:
    bench, sequences = with_little_credit()
    bench.step()
    (victim,) = [one for one in sequences if one.state is SequenceState.WAITING]
    bench.scheduler.end(victim)
    bench.step()
    assert bench.counters.fair_preemptions == 2


def test_nobody_who_has_no_more_than_the_newcomer_gives_a_slot_up() -> None:
    bench = Bench(budget=200, max_running=2)
    for key, tenant in enumerate("ab"):
        bench.add(10, key=key, tenant=tenant)
    for _ in range(40):
        bench.step()
    late = bench.add(5, key=9, tenant="c")
    bench.step()
    assert (late.state, bench.counters.fair_preemptions) == (SequenceState.WAITING, 0)


def test_pages_are_taken_as_slots_are() -> None:
    bench = Bench(num_pages=12, budget=200)
    bench.expect_short_answers()
    flood = [bench.add(50, key=key, tenant="a") for key in range(3)]
    bench.step()
    newcomer = bench.add(40, key=50, tenant="b")
    assert (50, 40) in shares(bench.step())
    assert newcomer.state is SequenceState.RUNNING
    assert flood[2].phases.queue_reason is QueueReason.MEMORY
    assert bench.counters.fair_preemptions == 1


def test_pages_are_not_taken_from_who_has_no_more_than_its_share() -> None:
    bench = Bench(num_pages=20, budget=400)
    for key in range(3):
        bench.add(14, key=key, tenant="a")
    for _ in range(10):
        bench.step()
    huge = bench.add(300, key=9, tenant="b")
    for _ in range(5):
        bench.step()
    assert huge.phases.queue_reason is QueueReason.MEMORY
    assert bench.counters.fair_preemptions == 0


def test_decode_that_needs_pages_takes_none_from_who_is_favoured() -> None:
    bench = Bench(num_pages=8, budget=200)
    bench.expect_short_answers()
    for key in range(2):
        bench.add(30, key=key, tenant="a")
    bench.step()
    small = bench.add(20, key=9, tenant="b")
    while not bench.counters.preemptions:
        bench.step()
    assert small.state is SequenceState.RUNNING
    assert small.phases.num_preemptions == 0


def test_beside_a_favoured_prompt_no_other_is_computed() -> None:
    bench = Bench(budget=64)
    for key, num_tokens in enumerate((200, 100)):
        bench.add(num_tokens, key=key, tenant="a")
        bench.step()
    bench.add(20, key=9, tenant="b")
    assert shares(bench.step()) == [(9, 20)]
    assert shares(bench.step()) == [(9, 1), (1, 36), (0, 27)]


@pytest.mark.parametrize("has_tail", [True, False])
def test_who_goes_in_the_step_that_let_it_in_leaves_no_page_behind(has_tail: bool) -> None:
    """Part of its first page is still to be copied, and never is."""
    bench = Bench(budget=200, max_running=2)
    bench.scheduler.end(bench.run_once(40, key=7))
    sequences = [bench.add(10, key=0, tenant="a")]
    for _ in range(30):
        bench.step()
    prompt = [7, *range(35), 80, 81] if has_tail else [8, *range(35)]
    sequences.append(make_sequence(prompt, key=10, tenant="a"))
    bench.scheduler.add(sequences[-1])
    sequences.append(bench.add(5, key=11, tenant="b"))
    schedule = bench.scheduler.schedule()
    assert (sequences[1].was_admitted, sequences[1].state) == (True, SequenceState.WAITING)
    assert not schedule.batch.copies
    bench.cache.check_invariants()
    for sequence in sequences:
        bench.scheduler.end(sequence)
    counts = bench.cache.counts()
    assert (counts.held, counts.locked, counts.free + counts.cached) == (0, 0, counts.total)
