"""Steps that are recorded, and what traces say of preemptions, over the fake executor."""

import pytest

from runtime.messages import MAX_STEP_LINKS, Phase, StepSpan, TraceContext
from telemetry import names
from tests.engine_harness import EngineHarness, make_submit

OTHER_GATEWAY = b"other"


def traced(number: int, flags: str = "01") -> TraceContext:
    return TraceContext(f"00-{number:032x}-{number:016x}-{flags}")


def harness(
    *, num_pages: int = 256, max_running: int = 16, max_step_tokens: int = 512
) -> EngineHarness:
    return EngineHarness(
        num_pages=num_pages,
        max_running=max_running,
        max_step_tokens=max_step_tokens,
        trace_steps=1.0,
    )


def phases_of(bench: EngineHarness, request_id: str, name: str) -> list[Phase]:
    return [one for one in bench.answer(request_id).phases if one.name == name]


def test_each_chunk_is_linked_to_its_step_and_each_step_to_the_request() -> None:
    bench = harness(max_step_tokens=16)
    bench.submit(make_submit("a", range(40), max_tokens=2, trace=traced(1)))
    bench.run()
    steps = [step for _, step in bench.recorded]
    chunks = phases_of(bench, "a", names.SPAN_PREFILL)
    assert len(chunks) == 3
    assert [chunk.step for chunk in chunks] == [step.traceparent for step in steps[:3]]
    assert len({step.traceparent for step in steps}) == len(steps) == bench.stats.steps
    assert {tuple(step.requests) for step in steps} == {(traced(1).traceparent,)}
    for chunk, step in zip(chunks, steps, strict=False):
        assert step.start_ns == chunk.start_ns < chunk.end_ns < step.end_ns
    assert {phase.step for phase in phases_of(bench, "a", names.SPAN_DECODE)} == {""}


def test_a_step_says_what_it_computed_beside_whom() -> None:
    bench = harness(num_pages=64)
    bench.submit(make_submit("a", range(40), max_tokens=9, trace=traced(1)))
    bench.step()
    bench.submit(make_submit("b", range(50, 80), max_tokens=9))
    while bench.stats.num_running < 2:
        bench.step()
    attributes = bench.recorded[-1][1].attributes
    assert {key: attributes[key] for key in attributes if not key.endswith("_ms")} == {
        names.ATTR_STEP_NUMBER: bench.stats.steps - 1,
        names.ATTR_BATCH_ROWS: 2,
        names.ATTR_STEP_DECODE_ROWS: 1,
        names.ATTR_STEP_PREFILL_TOKENS: 30,
        names.ATTR_STEP_WAITING: 0,
        names.ATTR_STEP_RUNNING: 2,
        names.ATTR_STEP_PAGES_FREE: bench.stats.pages_free,
    }
    assert attributes[names.ATTR_STEP_PAGES_FREE] == 64 - 3 - 2
    # the clock goes on by a microsecond at each reading
    assert attributes[names.ATTR_STEP_FORWARD_MS] == pytest.approx(0.001)
    assert attributes[names.ATTR_STEP_SAMPLE_MS] == pytest.approx(0.001)
    assert attributes[names.ATTR_MASK_TIME_MS] == 0


@pytest.mark.parametrize("trace", [None, traced(1, "00"), traced(1, "02"), TraceContext("")])
def test_a_step_without_a_traced_request_is_not_recorded(trace: TraceContext | None) -> None:
    bench = harness()
    bench.submit(make_submit("a", range(20), trace=trace))
    bench.run()
    assert bench.recorded == []
    assert {chunk.step for chunk in phases_of(bench, "a", names.SPAN_PREFILL)} == {""}


def test_without_a_share_no_step_is_recorded() -> None:
    bench = EngineHarness(trace_steps=0.0)
    bench.submit(make_submit("a", range(20), trace=traced(1)))
    bench.run()
    assert bench.recorded == []


def test_a_share_of_the_steps_is_recorded_and_their_chunks_alone_say_so() -> None:
    bench = EngineHarness(trace_steps=0.5, max_step_tokens=16)
    bench.submit(make_submit("a", range(96), max_tokens=200, trace=traced(1)))
    bench.run()
    steps = {step.traceparent: step for _, step in bench.recorded}
    # of 205 draws; beyond these one in 10**9 lies
    assert 60 < len(steps) < 145
    for chunk in phases_of(bench, "a", names.SPAN_PREFILL):
        step = steps.pop(chunk.step, None)
        assert (step is None) == (chunk.step == "")
        assert step is None or step.start_ns == chunk.start_ns


def test_the_gateway_of_a_traced_request_is_told_and_links_are_to_traced_ones() -> None:
    bench = harness()
    bench.submit(make_submit("a", range(20)))
    bench.submit(make_submit("b", range(30, 50), trace=traced(2)), OTHER_GATEWAY)
    bench.submit(make_submit("c", range(60, 80), num_choices=3, trace=traced(3, "03")))
    bench.run()
    gateway, first = bench.recorded[0]
    assert (gateway, first.requests[0]) == (OTHER_GATEWAY, traced(2).traceparent)
    links = max((step.requests for _, step in bench.recorded), key=len)
    assert links == [traced(2).traceparent, traced(3, "03").traceparent]


def test_a_step_of_many_requests_says_how_many_it_has_no_links_to() -> None:
    num_requests = MAX_STEP_LINKS + 3
    bench = harness(max_running=num_requests, num_pages=512, max_step_tokens=4096)
    for number in range(1, num_requests + 1):
        submit = make_submit(f"r{number}", [number % 90, number // 90], trace=traced(number))
        bench.submit(submit)
    bench.run()
    step: StepSpan = max((step for _, step in bench.recorded), key=lambda one: len(one.requests))
    assert len(step.requests) == MAX_STEP_LINKS
    assert step.attributes[names.ATTR_STEP_LINKS_LEFT_OUT] == 3


def test_a_recorded_step_is_told_once() -> None:
    bench = harness()
    bench.submit(make_submit("a", range(20), trace=traced(1)))
    bench.engine.step()
    assert bench.engine.take_recorded() is not None
    assert bench.engine.take_recorded() is None


def preempted_driver() -> EngineHarness:
    """Two answers that grow until there are pages for one only."""
    bench = EngineHarness(num_pages=8, watermark=0.0)
    bench.expect_short_answers()
    for number in range(2):
        prompt = range(number * 40, number * 40 + 30)
        bench.submit(make_submit(f"r{number}", prompt, max_tokens=60, use_cache=False))
    return bench


def test_a_preemption_is_told_in_the_step_in_which_it_happens() -> None:
    bench = preempted_driver()
    told: list[Phase] = []
    while not told:
        told = [
            phase
            for event in bench.step()
            for phase in event.phases
            if phase.name == names.EVENT_PREEMPTED
        ]
        assert bool(told) == (bench.stats.preemptions > 0)
    attributes = told[0].attributes
    assert attributes[names.ATTR_PREEMPTION_REASON] == "memory"
    assert int(attributes[names.ATTR_TOKENS]) > 30
    assert told[0].start_ns == told[0].end_ns


def test_each_preemption_is_followed_by_a_wait_and_a_resumption() -> None:
    bench = preempted_driver()
    bench.run()
    assert bench.stats.preemptions > 0
    (victim,) = {
        request_id for request_id in ("r0", "r1") if phases_of(bench, request_id, "preempted")
    }
    found = [phase.name for phase in bench.answer(victim).phases]
    first = found.index("preempted")
    assert found[first + 1 : first + 4] == ["queue", "cache.match", "resumed"]
    assert len(phases_of(bench, victim, "resumed")) == bench.stats.preemptions
    (decode,) = phases_of(bench, victim, "decode")
    assert decode.attributes[names.ATTR_PREEMPTIONS] == bench.stats.preemptions


def test_a_place_that_goes_to_another_tenant_is_given_up_for_fairness() -> None:
    bench = EngineHarness(max_running=4)
    for number in range(6):
        bench.submit(make_submit(f"a{number}", [number] * 40, max_tokens=60, tenant="a"))
        bench.step()
    bench.submit(make_submit("b", [9] * 40, max_tokens=3, tenant="b"))
    bench.run()
    reasons = [
        phase.attributes[names.ATTR_PREEMPTION_REASON]
        for answer in bench.answers.values()
        for phase in answer.phases
        if phase.name == names.EVENT_PREEMPTED
    ]
    assert reasons == ["fairness"] * bench.stats.fair_preemptions
    assert bench.stats.fair_preemptions > 0


def test_a_request_says_how_many_waited_when_it_joined() -> None:
    bench = EngineHarness(max_running=1)
    for number in range(4):
        bench.submit(make_submit(f"r{number}", [number] * 3, max_tokens=3))
    bench.run()
    positions = [
        phases_of(bench, f"r{number}", names.SPAN_QUEUE)[0].attributes[names.ATTR_QUEUE_POSITION]
        for number in range(4)
    ]
    assert positions == [0, 1, 2, 3]


def test_a_match_says_where_the_cached_sequence_goes_on_differently() -> None:
    bench = EngineHarness()
    answer = bench.ask(make_submit("a", range(60), max_tokens=8)).token_ids
    bench.ask(make_submit("b", [*range(60), *answer[:7], 70, 71]))
    bench.ask(make_submit("c", [*range(37), *range(80, 90)]))
    (grows,), (differs,) = (phases_of(bench, one, names.SPAN_CACHE_MATCH) for one in ("b", "c"))
    assert differs.attributes[names.ATTR_MISS_REASON] == "differs"
    assert differs.attributes[names.ATTR_DIFFERS_AT] == 37
    assert grows.attributes[names.ATTR_MISS_REASON] == "grows"
    assert names.ATTR_DIFFERS_AT not in grows.attributes
