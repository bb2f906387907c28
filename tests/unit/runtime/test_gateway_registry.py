"""Known, silent and expelled gateways, with a clock that the tests turn."""

from runtime.gateway_registry import MAX_EXPELLED, MAX_TICK_S, GatewayRegistry


def test_a_gateway_that_says_nothing_for_the_timeout_is_silent() -> None:
    gateways = GatewayRegistry(timeout_s=2.0)
    gateways.greet(b"a")
    assert [gateways.tick(1.0), gateways.tick(1.0), gateways.tick(0.5)] == [[], [], [b"a"]]


def test_a_gateway_that_says_something_is_not_silent() -> None:
    gateways = GatewayRegistry(timeout_s=2.0)
    gateways.greet(b"a")
    gateways.greet(b"b")
    gateways.tick(1.0)
    gateways.tick(0.9)
    assert gateways.hear(b"b")
    assert gateways.tick(0.2) == [b"a"]


def test_time_in_which_the_loop_stood_still_is_not_silence_of_the_gateways() -> None:
    gateways = GatewayRegistry(timeout_s=2 * MAX_TICK_S)
    gateways.greet(b"a")
    assert gateways.tick(3600.0) == []


def test_a_stranger_is_not_heard_before_it_greets() -> None:
    gateways = GatewayRegistry(timeout_s=2.0)
    assert not gateways.hear(b"a")
    gateways.greet(b"a")
    assert gateways.hear(b"a")
    gateways.forget(b"a")
    assert not gateways.hear(b"a")


def test_the_number_of_gateways_is_bounded_but_known_ones_may_go_on_greeting() -> None:
    gateways = GatewayRegistry(timeout_s=2.0, capacity=2)
    assert [gateways.greet(one) for one in (b"a", b"b", b"c", b"a")] == [True, True, False, True]
    gateways.forget(b"a")
    assert gateways.greet(b"c")


def test_an_expelled_gateway_is_told_once() -> None:
    gateways = GatewayRegistry(timeout_s=2.0)
    gateways.greet(b"a")
    gateways.expel(b"a")
    assert not gateways.hear(b"a")
    assert [gateways.take_expelled(b"a"), gateways.take_expelled(b"a")] == [True, False]


def test_the_memory_of_expelled_gateways_is_bounded_and_keeps_the_latest() -> None:
    gateways = GatewayRegistry(timeout_s=2.0)
    identities = [str(number).encode() for number in range(MAX_EXPELLED + 3)]
    for identity in identities:
        gateways.expel(identity)
    told = [gateways.take_expelled(identity) for identity in identities]
    assert told == [False] * 3 + [True] * MAX_EXPELLED
