"""Which requests are due, and when."""

from runtime.deadlines import Deadlines

A, B = (b"gateway", "a"), (b"gateway", "b")


def test_requests_are_due_in_the_order_of_their_deadlines() -> None:
    deadlines = Deadlines()
    deadlines.add(A, 200)
    deadlines.add(B, 100)
    assert deadlines.take_due(99) == []
    assert deadlines.take_due(200) == [B, A]
    assert deadlines.take_due(300) == []


def test_a_request_is_due_at_each_of_its_deadlines() -> None:
    deadlines = Deadlines()
    deadlines.add(A, 200, 100)
    assert [deadlines.take_due(now) for now in (99, 100, 150, 200)] == [[], [A], [], [A]]


def test_a_deadline_of_zero_is_none() -> None:
    deadlines = Deadlines()
    deadlines.add(A, 0, 0)
    assert deadlines.take_due(10**30) == []
