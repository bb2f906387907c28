"""What is accepted, what is refused, and that places come back."""

from contextlib import ExitStack

import pytest

from gateway.accounts import Account, AccountLimits
from gateway.errors import DeadlineExceeded, GatewayError, InvalidRequest, Overloaded, RateLimited
from gateway.limiter import MAX_RETRY_AFTER_S, Limiter, Limits


def account(tenant: str = "", max_concurrent: int | None = None) -> Account:
    return Account(tenant=tenant, limits=AccountLimits(max_concurrent=max_concurrent))


def limiter(*, running: int = 2, queue: int = 1, tokens: int = 100, per_tenant: int = 0) -> Limiter:
    limits = Limits(
        max_running=running, max_queue=queue, max_prompt_tokens=tokens, max_per_tenant=per_tenant
    )
    return Limiter(limits)


def test_running_and_waiting_requests_are_accepted_and_no_more() -> None:
    limits = limiter()
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(limits.admit(account(""), 1))
        with pytest.raises(Overloaded), limits.admit(account(""), 1):
            pass
        assert limits.num_sequences == 3
    assert limits.num_sequences == 0
    with limits.admit(account(""), 1):
        pass


def test_place_is_freed_when_the_request_fails() -> None:
    limits = limiter(running=1, queue=0)

    def fail() -> None:
        with limits.admit(account(""), 1) as admission:
            admission.add_prompt_tokens(10)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (limits.num_sequences, limits.num_prompt_tokens) == (0, 0)


def test_prompt_tokens_over_the_limit_are_refused_and_not_counted() -> None:
    limits = limiter(tokens=100)
    with limits.admit(account(""), 1) as first, limits.admit(account(""), 1) as second:
        first.add_prompt_tokens(60)
        with pytest.raises(Overloaded):
            second.add_prompt_tokens(41)
        second.add_prompt_tokens(40)
        assert limits.num_prompt_tokens == 100
    assert limits.num_prompt_tokens == 0


def test_lone_prompt_is_accepted_whatever_its_length() -> None:
    limits = limiter(tokens=10)
    with limits.admit(account(""), 1) as admission:
        admission.add_prompt_tokens(1000)


def test_request_counts_with_all_its_choices() -> None:
    limits = limiter(running=2, queue=6)
    with limits.admit(account(""), 5):
        with pytest.raises(Overloaded), limits.admit(account(""), 4):
            pass
        with limits.admit(account(""), 3):
            assert limits.num_sequences == 8
    assert limits.num_sequences == 0


def test_lone_request_is_accepted_whatever_its_choices_and_nothing_beside_it() -> None:
    limits = limiter(running=8, queue=8)
    with (
        limits.admit(account("a"), 20),
        pytest.raises(Overloaded),
        limits.admit(account("b"), 1),
    ):
        pass


def test_request_beyond_its_tenants_limit_can_never_be_served_and_is_told_so() -> None:
    limits = limiter(running=8, per_tenant=2)
    with pytest.raises(RateLimited) as caught, limits.admit(account("a"), 3):
        pass
    assert caught.value.headers() == {"x-should-retry": "false"}
    assert limits.num_sequences == 0


def test_limit_of_the_account_goes_before_that_of_the_settings() -> None:
    limits = limiter(running=8, per_tenant=1)
    with limits.admit(account("a", 3), 2), limits.admit(account("a", 3), 1):
        with pytest.raises(RateLimited) as caught, limits.admit(account("a", 3), 1):
            pass
        assert caught.value.headers() == {"retry-after": "1", "retry-after-ms": "1000"}
        assert "limit 3, used 3, requested 1" in caught.value.message
        with limits.admit(account("b"), 1):
            pass


def test_tenants_limit_is_its_own() -> None:
    limits = limiter(running=8, per_tenant=1)
    with limits.admit(account("a"), 1):
        with pytest.raises(RateLimited), limits.admit(account("a"), 1):
            pass
        with limits.admit(account("b"), 1):
            pass
    with limits.admit(account("a"), 1):
        pass


@pytest.mark.parametrize("refusal", [InvalidRequest("too long"), Overloaded("full")])
def test_refused_requests_do_not_make_the_others_look_fast(refusal: GatewayError) -> None:
    assert retry_after_ten_seconds_and(refusal) == 10


def test_request_that_failed_late_counts_as_long_as_it_took() -> None:
    assert retry_after_ten_seconds_and(DeadlineExceeded("late")) == 1


def retry_after_ten_seconds_and(error: GatewayError) -> int:
    """What the limiter advises after many requests of 10 s and as many that ended so at once."""
    now = 0.0
    limits = Limiter(Limits(max_running=1, max_queue=1, max_prompt_tokens=1), clock=lambda: now)
    for _ in range(50):
        with limits.admit(account(""), 1):
            now += 10
    for _ in range(50):
        with pytest.raises(type(error)), limits.admit(account(""), 1):
            raise error
    with limits.admit(account(""), 1):
        return limits.retry_after_s()


def test_retry_after_follows_how_long_requests_take() -> None:
    now = 0.0
    limits = Limiter(Limits(max_running=1, max_queue=1, max_prompt_tokens=1), clock=lambda: now)
    assert limits.retry_after_s() == 1
    for _ in range(50):
        with limits.admit(account(""), 1):
            now += 10
    with limits.admit(account(""), 1), limits.admit(account(""), 1):
        assert limits.retry_after_s() == 20
    for _ in range(50):
        with limits.admit(account(""), 1):
            now += 1000
    with limits.admit(account(""), 1):
        assert limits.retry_after_s() == MAX_RETRY_AFTER_S
