"""What a tier's transfers are believed to take."""

import pytest

from runtime.cost_gate import FIRST_LOOKUP_NS, STALE_NS, CostGate

FIRST_LOOKUP_NS_INT = round(FIRST_LOOKUP_NS)


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def test_what_was_never_measured_is_believed_to_be_fast() -> None:
    gate = CostGate(Clock())
    assert gate.lookup_ns == FIRST_LOOKUP_NS
    assert gate.transfer_ns(1_000_000_000) == FIRST_LOOKUP_NS


def test_the_first_measurement_counts_whole_and_later_ones_in_part() -> None:
    gate = CostGate(Clock())
    gate.observe_lookup(1_000)
    assert gate.lookup_ns == 1_000
    gate.observe_lookup(2_000)
    assert 1_000 < gate.lookup_ns < 2_000
    for _ in range(50):
        gate.observe_lookup(2_000)
    assert gate.lookup_ns == pytest.approx(2_000, rel=1e-3)


def test_a_transfer_is_latency_and_bytes() -> None:
    gate = CostGate(Clock())
    gate.observe_lookup(1_000)
    gate.observe_transfer(100, 6_000)
    assert gate.transfer_ns(100) == pytest.approx(6_000)
    assert gate.transfer_ns(1_000) == pytest.approx(51_000)


def test_a_transfer_of_nothing_teaches_nothing() -> None:
    clock = Clock()
    gate = CostGate(clock)
    clock.now_ns = STALE_NS + 1
    gate.observe_transfer(0, 5_000_000)
    assert gate.transfer_ns(1_000) == FIRST_LOOKUP_NS
    assert gate.is_stale()


def test_a_transfer_that_is_faster_than_a_lookup_is_not_believed_to_take_less_than_no_time() -> (
    None
):
    gate = CostGate(Clock())
    gate.observe_lookup(9_000)
    gate.observe_transfer(100, 5_000)
    assert gate.transfer_ns(10_000) == 9_000


def test_figures_age_until_something_is_measured() -> None:
    clock = Clock()
    gate = CostGate(clock)
    assert not gate.is_stale()
    clock.now_ns = STALE_NS + 1
    assert gate.is_stale()
    gate.observe_lookup(5)
    assert not gate.is_stale()
    clock.now_ns *= 2
    assert gate.is_stale()
    gate.observe_transfer(1, 5)
    assert not gate.is_stale()


def test_one_slow_page_does_not_keep_many_away_and_several_do() -> None:
    gate = CostGate(Clock(), full_bytes=1_000)
    gate.observe_transfer(100, FIRST_LOOKUP_NS_INT + 100_000)
    assert gate.transfer_ns(1_000) < FIRST_LOOKUP_NS + 200_000
    for _ in range(40):
        gate.observe_transfer(100, FIRST_LOOKUP_NS_INT + 100_000)
    assert gate.transfer_ns(1_000) > FIRST_LOOKUP_NS + 600_000


def test_small_transfers_are_worth_a_whole_one_together() -> None:
    gate = CostGate(Clock(), full_bytes=100)
    gate.observe_transfer(100, FIRST_LOOKUP_NS_INT + 300)
    assert gate.transfer_ns(100) == pytest.approx(FIRST_LOOKUP_NS + 300)
    gate.observe_transfer(100, FIRST_LOOKUP_NS_INT + 600)
    assert gate.transfer_ns(100) == pytest.approx(FIRST_LOOKUP_NS + 390)
