"""A replica under load: sums that must hold, and the queue."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planning.errors import PlanError
from tests.unit.planning.loads import gpus, load_of


def test_one_user_waits_for_nobody() -> None:
    load = load_of()
    state = load.with_users(1)
    assert state.queue_s == 0.0
    assert state.step_rows == 1.0
    assert state.ttft_s == pytest.approx(load.ttft_alone_s())
    assert state.tpot_s == pytest.approx(load.tpot_alone_s())
    whole_s = state.ttft_s + 199 * state.tpot_s
    assert state.rate == pytest.approx(1 / whole_s)


@pytest.mark.parametrize("users", [2, 16, 100])
def test_requests_in_the_server_are_rate_times_time(users: int) -> None:
    state = load_of().with_users(users)
    assert state.users == pytest.approx(users)
    assert state.rate * (state.ttft_s + 199 * state.tpot_s) == pytest.approx(users)


def test_a_given_rate_is_served() -> None:
    state = load_of().with_rate(5.0)
    assert state.rate == pytest.approx(5.0)
    assert state.rows == pytest.approx(5.0 * 199 * state.tpot_s)


def test_the_mean_wait_is_that_of_a_queue_with_equal_services() -> None:
    load = load_of(output=2, prompt=2000, chunk=100_000)
    state = load.with_rate(10.0)
    service_s = load.prompt_work_s + 0.02 * load.decode_step(state.rows).total_s
    busy = 10.0 * service_s
    assert state.queue_s == pytest.approx(busy * service_s / (2 * (1 - busy)), rel=0.02)


def test_a_rate_beyond_the_gpu_is_refused() -> None:
    with pytest.raises(PlanError, match="exceed what the GPU can compute"):
        load_of(prompt=8000).with_rate(100.0)


def test_prompts_slow_down_the_tokens_of_others() -> None:
    load = load_of(prompt=8000, output=100)
    state = load.with_users(20)
    assert state.tpot_s > 1.5 * state.step.total_s


def test_a_shared_prefix_is_not_computed_again() -> None:
    apart, shared = load_of(prompt=4000), load_of(prompt=4000, shared=3500)
    assert shared.ttft_alone_s() < apart.ttft_alone_s() / 3
    assert shared.with_users(30).rate > apart.with_users(30).rate
    assert shared.with_users(30).ttft_s < apart.with_users(30).ttft_s


def test_the_last_token_of_a_prompt_is_computed_also_where_all_is_cached() -> None:
    assert load_of(prompt=1000, shared=1000).workload.new == 1


@settings(derandomize=True, max_examples=30, deadline=None)
@given(
    prompt=st.integers(1, 8000),
    output=st.integers(1, 2000),
    share=st.floats(0, 1),
    users=st.integers(1, 300),
    more=st.integers(0, 200),
    faster=st.floats(1, 3),
)
def test_more_users_are_never_served_faster_nor_a_better_gpu_slower(
    prompt: int, output: int, share: float, users: int, more: int, faster: float
) -> None:
    load = load_of(prompt=prompt, output=output, shared=int(prompt * share))
    few, many = load.with_users(users), load.with_users(users + more)
    assert many.ttft_s >= few.ttft_s * (1 - 1e-6)
    assert many.tpot_s >= few.tpot_s * (1 - 1e-6)
    # A full replica stays full, with steps of more rows between the chunks of its prompts.
    assert many.rate >= few.rate * 0.95
    machine = gpus()
    better = replace(
        machine, bandwidth=machine.bandwidth * faster, kv_bandwidth=machine.bandwidth * faster
    )
    quick = load_of(machine=better, prompt=prompt, output=output, shared=int(prompt * share))
    assert quick.with_users(users).rate >= few.rate * (1 - 1e-6)
    assert quick.tpot_alone_s() <= load.tpot_alone_s()


@settings(derandomize=True, max_examples=20, deadline=None)
@given(rate=st.floats(0.01, 9), more=st.floats(1, 2))
def test_a_higher_rate_is_never_served_faster(rate: float, more: float) -> None:
    load = load_of()
    calm, busy = load.with_rate(rate), load.with_rate(rate * more)
    assert math.isfinite(calm.ttft_s)
    assert busy.ttft_s >= calm.ttft_s * (1 - 1e-9)
    assert busy.tpot_s >= calm.tpot_s * (1 - 1e-9)
