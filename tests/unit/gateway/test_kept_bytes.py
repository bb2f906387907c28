"""Bounded memory of many tenants."""

from typing import Any

import pytest

from gateway.kept_bytes import KeepLimits, KeptBytes


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def kept(clock: Any = None, **limits: Any) -> KeptBytes:
    bounds = {"max_values": 4, "max_bytes": 100, "ttl_s": 10, **limits}
    return KeptBytes(KeepLimits(**bounds), clock=clock or Clock())


def test_a_value_is_its_tenants_alone() -> None:
    memory = kept()
    memory.put("a", "k", b"x")
    assert memory.get("a", "k") == b"x"
    assert memory.get("b", "k") is None
    assert not memory.pop("b", "k")
    assert memory.pop("a", "k")
    assert memory.get("a", "k") is None
    assert (memory.num_values, memory.num_bytes) == (0, 0)


def test_over_the_number_the_least_recently_used_goes() -> None:
    memory = kept()
    for name in "1234":
        memory.put("a", name, b"x")
    memory.get("a", "1")
    memory.put("a", "5", b"x")
    assert [name for name in "12345" if memory.get("a", name)] == ["1", "3", "4", "5"]


def test_over_the_bytes_as_many_go_as_must() -> None:
    memory = kept()
    for name in "123":
        memory.put("a", name, b"x" * 30)
    memory.put("a", "4", b"x" * 60)
    assert [name for name in "1234" if memory.get("a", name)] == ["3", "4"]
    assert memory.num_bytes == 90


@pytest.mark.parametrize("limits", [{"max_values": 4}, {"max_values": 99}])
def test_who_keeps_the_most_makes_room(limits: dict[str, int]) -> None:
    memory = kept(**limits)
    memory.put("quiet", "k", b"old")
    for index in range(20):
        memory.put("loud", str(index), b"x" * 20)
    assert memory.get("quiet", "k") == b"old"
    assert (memory.num_values, memory.num_bytes) in ((4, 63), (5, 83))


def test_a_value_larger_than_the_whole_is_not_kept_and_costs_no_other() -> None:
    memory = kept()
    memory.put("a", "k", b"x")
    assert not memory.put("a", "big", b"x" * 101)
    assert memory.get("a", "k") == b"x"


def test_a_value_that_makes_room_at_once_is_not_called_kept() -> None:
    memory = kept()
    assert memory.put("a", "k", b"x" * 40)
    assert not memory.put("b", "big", b"x" * 90)
    assert memory.get("b", "big") is None
    assert memory.get("a", "k") == b"x" * 40


def test_age_counts_from_the_last_use() -> None:
    clock = Clock()
    memory = kept(clock)
    memory.put("a", "used", b"x")
    memory.put("a", "unused", b"x")
    clock.now = 9
    memory.get("a", "used")
    clock.now = 10
    assert memory.get("a", "unused") is None
    assert not memory.pop("a", "unused")
    assert memory.get("a", "used") == b"x"


def test_what_is_too_old_takes_no_room() -> None:
    clock = Clock()
    memory = kept(clock)
    for name in "1234":
        memory.put(name, name, b"x" * 25)
    clock.now = 10
    memory.put("a", "new", b"x")
    assert (memory.num_values, memory.num_bytes) == (1, 1)


def test_a_new_value_takes_the_old_ones_place() -> None:
    memory = kept()
    memory.put("a", "k", b"xx")
    memory.put("a", "k", b"y")
    assert memory.get("a", "k") == b"y"
    assert (memory.num_values, memory.num_bytes) == (1, 1)


def test_a_memory_of_nothing_is_off() -> None:
    memory = kept(max_values=0)
    assert not memory.is_on
    assert not memory.put("a", "k", b"x")
