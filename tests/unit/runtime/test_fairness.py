"""What tenants were served, whose turn follows from it, and who gives a place up."""

import pytest

from runtime.fairness import MANY_TIMES, MAX_REMEMBERED, FairTurns, RecomputeCredit, TenantCounters

MAX_LEAD = 1_000.0
QUANTUM = 100.0


def make_counters() -> TenantCounters:
    return TenantCounters(max_lead=MAX_LEAD)


def served(counters: TenantCounters, tenant: str) -> float:
    return counters.active[tenant].served


def serve(counters: TenantCounters, tenant: str, tokens: float) -> None:
    """One sequence from its arrival to its end."""
    counters.joined(tenant)
    counters.started(tenant)
    counters.charge(tenant, tokens)
    counters.stopped(tenant)


def run(counters: TenantCounters, tenant: str, num_sequences: int, tokens: float = 0.0) -> None:
    """So many more are running, and were served so much together."""
    for _ in range(num_sequences):
        counters.joined(tenant)
        counters.started(tenant)
    counters.charge(tenant, tokens)


def make_turns(counters: TenantCounters) -> FairTurns:
    return FairTurns(counters, quantum=QUANTUM)


def in_turn(counters: TenantCounters) -> list[str]:
    return sorted(counters.active, key=make_turns(counters).key)


def test_who_begins_to_wait_is_lifted_to_the_least_of_those_that_wait() -> None:
    counters = make_counters()
    for tenant in ("much", "little"):
        run(counters, tenant, 1)
        counters.joined(tenant)
    counters.charge("much", 700.0)
    counters.charge("little", 300.0)
    counters.joined("new")
    assert served(counters, "new") == 300.0


def test_where_nobody_waits_it_is_lifted_to_the_last_that_did() -> None:
    counters = make_counters()
    run(counters, "a", 1, 40.0)
    run(counters, "b", 1)
    counters.charge("b", 10.0)
    counters.charge("a", 500.0)
    counters.joined("new")
    assert served(counters, "new") == served(counters, "b") == 50.0


def test_idle_time_is_no_claim_however_long() -> None:
    counters = make_counters()
    serve(counters, "b", 10.0)
    run(counters, "a", 2)
    counters.joined("a")
    counters.charge("a", 5_000.0)
    counters.joined("b")
    assert served(counters, "b") == served(counters, "a")


def test_more_than_the_least_is_kept_while_away_as_a_debt() -> None:
    counters = make_counters()
    run(counters, "a", 1)
    counters.joined("a")
    serve(counters, "b", 400.0)
    assert "b" not in counters.active
    counters.charge("a", 100.0)
    counters.joined("b")
    assert served(counters, "b") == 400.0


def test_a_debt_beyond_about_a_request_is_forgiven() -> None:
    counters = make_counters()
    run(counters, "a", 1)
    counters.joined("a")
    serve(counters, "b", 10 * MAX_LEAD)
    counters.joined("b")
    assert served(counters, "b") == served(counters, "a") + MAX_LEAD


def test_a_second_sequence_that_waits_lifts_nobody() -> None:
    counters = make_counters()
    counters.joined("b")
    run(counters, "a", 1, 300.0)
    counters.joined("a")
    counters.joined("b")
    assert served(counters, "b") == 0.0


def test_who_is_no_better_than_the_least_is_forgotten_at_once() -> None:
    counters = make_counters()
    for number in range(50):
        serve(counters, f"t{number}", 0.0)
    assert (counters.num_remembered, len(counters.active)) == (0, 0)


def test_of_many_that_are_away_the_smallest_debts_are_forgotten() -> None:
    counters = make_counters()
    run(counters, "a", 1)
    counters.joined("a")
    for number in range(MAX_REMEMBERED + 40):
        serve(counters, f"t{number}", 10.0 + number)
    assert counters.num_remembered == MAX_REMEMBERED
    counters.joined("t0")
    counters.joined(f"t{MAX_REMEMBERED + 39}")
    assert served(counters, "t0") == 0.0
    assert served(counters, f"t{MAX_REMEMBERED + 39}") == 10.0 + MAX_REMEMBERED + 39


def test_an_endless_stream_of_new_tenants_does_not_overtake_for_ever() -> None:
    """Of 100 tokens each that are served while at most three wait, a third counts for the one."""
    counters = make_counters()
    counters.joined("new0")
    serve(counters, "old", 600.0)
    counters.joined("old")
    for number in range(1, 40):
        counters.joined(f"new{number}")
        if in_turn(counters)[0] == "old":
            break
        counters.started(f"new{number - 1}")
        counters.charge(f"new{number - 1}", 100.0)
        counters.stopped(f"new{number - 1}")
    assert in_turn(counters)[0] == "old"
    assert 6 <= number <= 3 * 6 + 1


def test_the_least_served_come_first_and_of_equals_who_waits_for_longest() -> None:
    counters = make_counters()
    for tenant in ("a", "b", "c"):
        counters.joined(tenant)
    counters.charge("a", 250.0)
    counters.charge("c", 99.0)
    assert in_turn(counters) == ["b", "c", "a"]
    counters.charge("b", 101.0)
    assert in_turn(counters) == ["c", "b", "a"]


def test_who_has_nothing_running_beside_many_of_another_is_favoured() -> None:
    counters = make_counters()
    run(counters, "many", 4)
    counters.joined("many")
    counters.charge("many", 1_000.0)
    counters.joined("new")
    assert make_turns(counters).is_favoured("new")
    assert not make_turns(counters).is_favoured("many")
    assert in_turn(counters) == ["new", "many"]


@pytest.mark.parametrize(
    ("num_own", "num_other", "is_favoured"),
    [(0, 1, False), (0, 2, True), (1, 2, True), (2, 3, False), (2, 4, True), (4, 7, False)],
)
def test_favoured_has_at_most_half_of_what_another_has(
    num_own: int, num_other: int, is_favoured: bool
) -> None:
    counters = make_counters()
    run(counters, "other", num_other)
    counters.joined("own")
    run(counters, "own", num_own)
    assert make_turns(counters).is_favoured("own") == is_favoured


def test_one_sequence_is_little_however_small_the_even_share() -> None:
    counters = make_counters()
    run(counters, "many", 3)
    run(counters, "own", 1)
    for number in range(5):
        counters.joined(f"t{number}")
    assert make_turns(counters).is_favoured("own")
    assert make_turns(counters).donor("own") is None


def test_who_has_its_even_share_is_not_favoured_whatever_others_have() -> None:
    counters = make_counters()
    run(counters, "most", 8)
    run(counters, "own", 3)
    for tenant in ("c", "d", "e"):
        counters.joined(tenant)
    assert not make_turns(counters).is_favoured("own")
    assert make_turns(counters).is_favoured("c")


def test_the_favour_ends_a_quantum_ahead() -> None:
    counters = make_counters()
    run(counters, "many", 4)
    run(counters, "own", 1)
    counters.charge("own", QUANTUM)
    assert make_turns(counters).is_favoured("own")
    counters.charge("own", 1.0)
    assert not make_turns(counters).is_favoured("own")


def test_a_place_is_given_up_by_the_one_served_most_of_those_that_have_many() -> None:
    counters = make_counters()
    counters.joined("new")
    for tenant, num_running, tokens in (("a", 4, 500.0), ("b", 4, 700.0), ("c", 1, 900.0)):
        run(counters, tenant, num_running, tokens)
    assert make_turns(counters).donor("new") == "b"


def test_nobody_gives_a_place_up_to_who_was_served_more() -> None:
    counters = make_counters()
    run(counters, "many", 4, 100.0)
    counters.joined("own")
    counters.charge("own", 100.0)
    assert make_turns(counters).donor("own") is None


def test_between_two_that_both_run_places_move_only_a_quantum_apart() -> None:
    counters = make_counters()
    run(counters, "own", 1)
    counters.joined("own")
    run(counters, "more", MANY_TIMES - 1, QUANTUM - 1.0)
    assert make_turns(counters).donor("own") is None
    counters.charge("more", 1.0)
    assert make_turns(counters).donor("own") == "more"


def test_or_where_one_has_many_times_as_many_as_the_other() -> None:
    counters = make_counters()
    run(counters, "own", 2)
    counters.joined("own")
    run(counters, "many", 2 * MANY_TIMES)
    assert make_turns(counters).donor("own") == "many"


def test_no_place_moves_where_that_would_only_turn_the_difference_round() -> None:
    counters = make_counters()
    run(counters, "own", 1)
    counters.joined("own")
    run(counters, "two", 2, 10 * QUANTUM)
    assert make_turns(counters).donor("own") is None


def test_a_tenant_alone_is_neither_favoured_nor_a_donor() -> None:
    counters = make_counters()
    run(counters, "", 16, 1_000.0)
    counters.joined("")
    assert not make_turns(counters).is_favoured("")
    assert make_turns(counters).donor("") is None


def test_the_turns_follow_every_change_of_the_counters() -> None:
    counters = make_counters()
    turns = make_turns(counters)
    run(counters, "many", 3)
    counters.joined("own")
    assert turns.is_favoured("own")
    counters.stopped("many")
    counters.stopped("many")
    assert not turns.is_favoured("own")


def test_new_tokens_pay_for_those_that_have_to_be_computed_again() -> None:
    credit = RecomputeCredit(max_tokens=100)
    assert not credit.covers(1)
    credit.earn(30)
    assert credit.covers(30)
    assert not credit.covers(31)
    credit.spend(7, 20)
    assert credit.covers(10)
    assert not credit.covers(11)


def test_what_was_found_in_the_cache_again_is_given_back_once() -> None:
    credit = RecomputeCredit(max_tokens=100)
    credit.earn(100)
    credit.spend(7, 100)
    credit.settle(8, 0)
    assert not credit.covers(1)
    for _ in range(2):
        credit.settle(7, 10)
        assert credit.covers(90)
        assert not credit.covers(91)


def test_no_more_is_saved_up_than_is_allowed() -> None:
    credit = RecomputeCredit(max_tokens=100)
    credit.earn(1_000)
    assert not credit.covers(101)


@pytest.mark.parametrize(("num_again", "num_left"), [(80, 10), (50, 10), (0, 60), (-5, 60)])
def test_no_more_is_given_back_than_was_spent_and_nothing_more_is_taken(
    num_again: int, num_left: int
) -> None:
    credit = RecomputeCredit(max_tokens=100)
    credit.earn(60)
    credit.spend(7, 50)
    credit.settle(7, num_again)
    credit.settle(8, -30)
    assert credit.covers(num_left)
    assert not credit.covers(num_left + 1)
