"""What is accepted, what is refused, and that places come back."""

from contextlib import ExitStack

import pytest

from gateway.errors import Overloaded, RateLimited
from gateway.limiter import MAX_RETRY_AFTER_S, Limiter, Limits


def limiter(*, running: int = 2, queue: int = 1, tokens: int = 100, per_tenant: int = 0) -> Limiter:
    limits = Limits(
        max_running=running, max_queue=queue, max_prompt_tokens=tokens, max_per_tenant=per_tenant
    )
    return Limiter(limits)


def test_running_and_waiting_requests_are_accepted_and_no_more() -> None:
    limits = limiter()
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(limits.admit(""))
        with pytest.raises(Overloaded), limits.admit(""):
            pass
        assert limits.num_requests == 3
    assert limits.num_requests == 0
    with limits.admit(""):
        pass


def test_place_is_freed_when_the_request_fails() -> None:
    limits = limiter(running=1, queue=0)

    def fail() -> None:
        with limits.admit("") as admission:
            admission.add_prompt_tokens(10)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (limits.num_requests, limits.num_prompt_tokens) == (0, 0)


def test_prompt_tokens_over_the_limit_are_refused_and_not_counted() -> None:
    limits = limiter(tokens=100)
    with limits.admit("") as first, limits.admit("") as second:
        first.add_prompt_tokens(60)
        with pytest.raises(Overloaded):
            second.add_prompt_tokens(41)
        second.add_prompt_tokens(40)
        assert limits.num_prompt_tokens == 100
    assert limits.num_prompt_tokens == 0


def test_lone_prompt_is_accepted_whatever_its_length() -> None:
    limits = limiter(tokens=10)
    with limits.admit("") as admission:
        admission.add_prompt_tokens(1000)


def test_tenants_limit_is_its_own() -> None:
    limits = limiter(running=8, per_tenant=1)
    with limits.admit("a"):
        with pytest.raises(RateLimited), limits.admit("a"):
            pass
        with limits.admit("b"):
            pass
    with limits.admit("a"):
        pass


def test_retry_after_follows_how_long_requests_take() -> None:
    now = 0.0
    limits = Limiter(Limits(max_running=1, max_queue=1, max_prompt_tokens=1), clock=lambda: now)
    assert limits.retry_after_s() == 1
    for _ in range(50):
        with limits.admit(""):
            now += 10
    with limits.admit(""), limits.admit(""):
        assert limits.retry_after_s() == 20
    for _ in range(50):
        with limits.admit(""):
            now += 1000
    with limits.admit(""):
        assert limits.retry_after_s() == MAX_RETRY_AFTER_S
