"""Layouts, limits, refusals: the smallest number of GPUs that does it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planning.capacity import room_of
from planning.errors import PlanError
from planning.plan import Question, make_plan
from planning.workload import Workload
from tests.unit.planning.loads import gpus, load_of, question_of


def test_what_fits_is_memory_less_weights_over_a_request() -> None:
    room = room_of(load_of("llama-3.1-8b"))
    assert room.usable == pytest.approx(72e9)
    assert room.weights == 2 * 8_030_261_248
    assert room.num_users == int((72e9 - 2 * 8_030_261_248) / (1200 * 131_072))
    assert room.max_context == 131_072


def test_a_shared_prefix_makes_room_for_more() -> None:
    room = room_of(load_of("llama-3.1-8b", prompt=4000, output=500, shared=3500))
    assert room.num_users > 4 * room.num_users_apart


def test_more_gpus_than_kv_heads_keep_copies() -> None:
    one, eight = room_of(load_of("qwen2.5-7b")), room_of(load_of("qwen2.5-7b", gpus(14)))
    weights = one.weights
    assert eight.kv == pytest.approx((14 * 72e9 - weights) / (14 / 4))


def test_seventy_billion_weights_in_16_bits_take_two_gpus_for_themselves_and_four_with_users() -> (
    None
):
    few = make_plan(question_of("llama-3.1-70b", users=1, work=Workload(500, 100)))
    many = make_plan(question_of("llama-3.1-70b", users=200, work=Workload(2000, 500)))
    assert (few.layout.num_gpus, few.layout.num_replicas) == (2, 1)
    assert many.layout.num_gpus >= 8
    assert many.layout.limit == "memory"


def test_users_are_spread_over_as_many_replicas_as_they_need() -> None:
    plan = make_plan(question_of(users=1000, work=Workload(1000, 200)))
    one = plan.layout.room.num_users
    assert plan.layout.num_replicas * one >= 1000 > (plan.layout.num_replicas - 1) * one


def test_a_tpot_that_one_gpu_cannot_reach_takes_a_larger_replica() -> None:
    plan = make_plan(question_of(users=1, tpot_s=0.0035))
    assert plan.layout.load.served.machine.num_devices == 4
    assert plan.layout.state.tpot_s <= 0.0035


def test_targets_hold_with_the_load_and_one_more_user_would_miss_them() -> None:
    plan = make_plan(question_of(users=300, tpot_s=0.020, ttft_s=0.5))
    capacity = plan.layout.capacity
    assert capacity is not None
    assert capacity.limit == "TPOT"
    assert plan.layout.state.tpot_s <= 0.020
    most = round(capacity.state.users)
    assert plan.layout.load.with_users(most + 1).tpot_s > 0.020


def test_long_prompts_under_a_ttft_target_are_limited_by_it() -> None:
    work = Workload(8000, 100)
    plan = make_plan(question_of(users=40, ttft_s=1.0, work=work, sizes=(1,)))
    assert plan.layout.limit == "TTFT"
    assert plan.layout.num_replicas > 1


def test_a_rate_is_spread_over_replicas() -> None:
    plan = make_plan(question_of(users=None, rate=80.0, sizes=(1,)))
    layout = plan.layout
    assert layout.capacity is not None
    assert layout.num_replicas == -(-80.0 // layout.capacity.state.rate)
    assert layout.state.rate == pytest.approx(80.0 / layout.num_replicas)


def test_prompts_only_are_limited_by_compute() -> None:
    work = Workload(8000, 2)
    plan = make_plan(question_of(users=None, rate=30.0, sizes=(1,), work=work))
    assert plan.layout.limit == "compute"


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (3.75, "^1 GPUs cannot compute the prompts of 3.75 requests a second"),
        (50.0, "^50 requests a second exceed what the GPU can compute"),
    ],
)
def test_prompts_that_given_gpus_cannot_compute_are_told(rate: float, message: str) -> None:
    work = Workload(8000, 2)
    question = question_of(users=None, rate=rate, sizes=(1,), work=work, num_gpus=1)
    with pytest.raises(PlanError, match=message):
        make_plan(question)


def test_who_waits_for_the_prefill_needs_no_memory_yet() -> None:
    state = load_of(prompt=8000, output=20).with_rate(3.0)
    assert state.users > state.sequences == pytest.approx(state.rows + 1)


def test_given_gpus_are_all_used_and_say_what_they_miss() -> None:
    plan = make_plan(question_of(users=200, tpot_s=0.012, num_gpus=1, sizes=(1,)))
    assert plan.layout.num_gpus == 1
    assert plan.layout.unmet == "TPOT"
    assert plan.layout.limit == "TPOT"
    more = make_plan(question_of(users=200, tpot_s=0.012, num_gpus=8, sizes=(1,)))
    assert (more.layout.num_gpus, more.layout.unmet) == (8, None)


@pytest.mark.parametrize("num_gpus", [3, 7])
def test_all_the_gpus_that_there_are_are_used(num_gpus: int) -> None:
    plan = make_plan(question_of(users=4, num_gpus=num_gpus, sizes=(1, 2, 4)))
    assert plan.layout.num_gpus == num_gpus


def test_a_change_for_gpus_that_there_are_leaves_their_number() -> None:
    plan = make_plan(question_of(users=4, num_gpus=8, sizes=(1,)))
    assert plan.best_change is not None
    assert plan.best_change.num_gpus == 8
    assert plan.best_change.per_gpu > plan.layout.per_gpu


def test_of_layouts_that_miss_the_targets_the_nearest_is_taken() -> None:
    question = question_of(users=4, tpot_s=0.002, num_gpus=4, sizes=(1, 2, 4))
    layout = make_plan(question).layout
    apart = make_plan(replace(question, machines=question.machines[:1])).layout
    assert (layout.unmet, apart.unmet) == ("TPOT", "TPOT")
    assert layout.state.tpot_s < apart.state.tpot_s


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (
            question_of("llama-3.1-405b", sizes=(1, 2)),
            "^does not fit: the weights of llama-3.1-405b take 811.7 GB, and 2 x H100-SXM has",
        ),
        (question_of(ttft_s=0.012), "^a TTFT of 12 ms is out of reach: one prompt alone takes"),
        (question_of(tpot_s=0.001), "^a TPOT of 1.0 ms is out of reach: one request alone takes"),
        (question_of(users=2000, num_gpus=1, sizes=(1,)), "^1 GPUs hold 355 requests at once"),
        (question_of(num_gpus=1, sizes=(2,)), "^a replica of 2 GPUs needs more than the 1 given"),
        (question_of(users=0), "at least 1 user"),
        (question_of(users=1, rate=1.0), "either --users or --rate"),
        (question_of(users=None, rate=0.0), "the rate must be above 0"),
        (question_of(ttft_s=0.0), "the TTFT target must be above 0"),
        (question_of(work=Workload(100, 10, 101)), "a shared prefix of 101 tokens does not fit"),
        (question_of(work=Workload(0, 10)), "must be at least 1 token"),
        (question_of(work=Workload(131_072, 1)), r"exceed the 131072 that llama-3\.1-8b can have"),
    ],
)
def test_what_cannot_be_is_one_clear_line(question: Question, message: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        make_plan(question)
    assert "\n" not in str(caught.value)


def test_one_request_that_does_not_fit_beside_the_weights_is_told() -> None:
    machine = replace(gpus(2), usable_bytes=139e9)
    question = question_of("llama-2-70b", work=Workload(4000, 90))
    message = (
        "^does not fit: beside the weights 2 x H100-SXM has 1.05 GB for KV, and one request of"
    )
    with pytest.raises(PlanError, match=f"{message} 4090 tokens takes 1.34 GB$"):
        make_plan(replace(question, machines=(machine,)))


def test_the_change_that_is_proposed_needs_fewer_gpus_or_holds_more() -> None:
    plan = make_plan(question_of("llama-3.1-70b", users=200, work=Workload(2000, 500)))
    change = plan.best_change
    assert change is not None
    assert change.num_gpus < plan.layout.num_gpus
    assert "bits" in change.what


def test_a_change_that_hardly_helps_is_not_proposed() -> None:
    question = question_of(users=None, rate=30.0, sizes=(1,), work=Workload(8000, 2))
    plan = make_plan(question)
    assert plan.layout.limit == "compute"
    assert plan.best_change is None


def test_no_change_of_formats_is_proposed_where_there_is_no_choice() -> None:
    question = replace(question_of(), may_change_formats=False)
    assert make_plan(question).best_change is None


def test_the_hour_is_split_over_input_cached_input_and_output() -> None:
    work = Workload(2000, 500, 1500)
    plan = make_plan(question_of("llama-3.1-70b", users=100, work=work, price=2.5))
    cost = plan.cost
    assert cost is not None
    assert cost.cached_input is not None
    assert cost.per_hour == 2.5 * plan.layout.num_gpus
    parts = 500 * cost.input + 1500 * cost.cached_input + 500 * cost.output
    assert parts / 1e6 == pytest.approx(cost.per_request)
    requests_an_hour = plan.layout.state.rate * plan.layout.num_replicas * 3600
    assert cost.per_request * requests_an_hour == pytest.approx(cost.per_hour)
    assert cost.cached_input < cost.input < cost.output


def test_without_a_shared_prefix_there_is_no_cached_input() -> None:
    cost = make_plan(question_of(price=1.0)).cost
    assert cost is not None
    assert cost.cached_input is None
    parts = 1000 * cost.input + 200 * cost.output
    assert parts / 1e6 == pytest.approx(cost.per_request)


@settings(derandomize=True, max_examples=15, deadline=None)
@given(
    users=st.integers(1, 400),
    more=st.integers(1, 400),
    prompt=st.integers(10, 3000),
    shared=st.floats(0, 1),
    tpot_ms=st.sampled_from([None, 15, 30]),
)
def test_more_users_never_need_fewer_gpus_and_sharing_never_more(
    users: int, more: int, prompt: int, shared: float, tpot_ms: int | None
) -> None:
    tpot_s = None if tpot_ms is None else tpot_ms / 1e3

    def needed(users: int, work: Workload) -> int:
        question = question_of(users=users, work=work, tpot_s=tpot_s, sizes=(1,))
        return make_plan(replace(question, may_change_formats=False)).layout.num_gpus

    apart = Workload(prompt, 100)
    together = Workload(prompt, 100, int(prompt * shared))
    assert needed(users + more, apart) >= needed(users, apart)
    assert needed(users, together) <= needed(users, apart)
