"""LiveRequests: what a request is in at each moment, and what is kept of those that ended."""

import pytest

from gateway.generation import (
    Admitted,
    ChatPrompt,
    ChoiceFinished,
    Completed,
    GenerationEvent,
    GenerationRequest,
    Submitted,
    TextDelta,
    Usage,
)
from gateway.live_requests import (
    MAX_ERRORS,
    MAX_FINISHED,
    MAX_PHASES_PER_NAME,
    LiveRequest,
    LiveRequests,
    RequestRecord,
)
from runtime.messages import Phase, Sampling
from telemetry import names

MS = 1_000_000


class Clock:
    """Nanoseconds that a test sets."""

    def __init__(self) -> None:
        self.ns = 1_000_000_000_000

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> LiveRequests:
    return LiveRequests(clock=clock)


def opened(log: LiveRequests, request_id: str = "req_1") -> LiveRequest:
    return log.open(request_id=request_id, trace_id="a" * 32, tenant="t1", route="/v1/completions")


def generation() -> GenerationRequest:
    return GenerationRequest(
        "cmpl-1",
        prompts=(ChatPrompt(({"content": "secret"},)),),
        sampling=Sampling(9),
        max_tokens=9,
    )


def told(request: LiveRequest, event: GenerationEvent, clock: Clock, *, after_ms: int = 1) -> None:
    """As an observation tells it: the timer first."""
    clock.ns += after_ms * MS
    if isinstance(event, TextDelta):
        request.timer.observe(event.num_tokens, clock.ns, choice=event.choice)
    request.event(event)


def only(log: LiveRequests) -> RequestRecord:
    (record,) = log.under_way(10)
    return record


def test_a_request_is_under_way_from_its_description_to_its_end(log: LiveRequests) -> None:
    request = opened(log)
    assert log.num_under_way == 0
    request.describe("tiny", generation())
    assert (log.num_under_way, only(log).model, only(log).outcome) == (1, "tiny", None)
    request.close(status=200, outcome="ok", error=None)
    assert (log.num_under_way, log.under_way(10)) == (0, [])


def test_stages_follow_the_events_and_each_is_an_open_phase(
    log: LiveRequests, clock: Clock
) -> None:
    request = opened(log)
    request.describe("tiny", generation())
    seen = [only(log)]
    for event in (Submitted("e", "1"), Admitted(), TextDelta(0, "", num_tokens=1)):
        told(request, event, clock)
        seen.append(only(log))
    assert [one.stage for one in seen] == ["preparing", "queued", "prefilling", "decoding"]
    opens = [one.open_phase for one in seen]
    assert opens[0] is None
    start_ns = request.timer.start_ns
    assert [(one.name, one.start_ns - start_ns) for one in opens if one is not None] == [
        ("queue", 1 * MS),
        ("prefill", 2 * MS),
        ("decode", 3 * MS),
    ]


def test_tokens_are_counted_while_they_come_with_the_timers_figures(
    log: LiveRequests, clock: Clock
) -> None:
    request = opened(log)
    request.describe("tiny", generation())
    told(request, TextDelta(0, "held back"), clock, after_ms=2)
    assert (only(log).stage, only(log).ttft_s) == ("preparing", None)
    told(request, TextDelta(0, "a", num_tokens=1), clock, after_ms=8)
    told(request, TextDelta(0, "b", num_tokens=4), clock, after_ms=20)
    record = only(log)
    assert (record.num_output_tokens, record.ttft_s, record.tpot_s) == (5, 0.01, 0.005)
    clock.ns += 2_000 * MS
    assert log.figures().ttft_p50_s == 0.01
    assert sum(log.figures().tokens_by_second) == 5
    assert log.figures().tpot_p50_s is None, "it is not known before the end"


def test_gaps_are_kept_for_who_asks_only(log: LiveRequests) -> None:
    asks = log.open(request_id="r", trace_id="t", tenant="", route="/", keeps_gaps=True)
    assert asks.timer.gaps is not None
    assert opened(log).timer.gaps is None


def test_a_finished_request_keeps_its_numbers_and_counts_for_the_minute(
    log: LiveRequests, clock: Clock
) -> None:
    request = opened(log)
    request.describe("tiny", generation())
    told(request, TextDelta(0, "a", num_tokens=1), clock)
    told(request, TextDelta(0, "b", num_tokens=1), clock, after_ms=7)
    told(request, ChoiceFinished(0, "length"), clock)
    told(request, Completed(Usage(40, 2, 30)), clock)
    request.close(status=200, outcome="ok", error=None)
    (record,) = log.finished_since(0)
    assert (record.number, record.status, record.outcome, record.error) == (1, 200, "ok", None)
    assert (record.open_phase, record.finish_reasons) == (None, ["length"])
    assert record.usage == Usage(40, 2, 30)
    assert record.end_ns == clock.ns
    figures = log.figures()
    assert (figures.tpot_p50_s, figures.hit_rate, figures.num_requests) == (0.007, 0.75, 1)


def test_what_a_request_took_that_ended_early_counts_as_well(log: LiveRequests) -> None:
    request, described = opened(log), generation()
    request.describe("tiny", described)
    described.usage_log.append(Usage(20, 1, 10))
    request.close(status=499, outcome="aborted", error=None)
    (record,) = log.finished_since(0)
    assert (record.outcome, record.usage) == ("aborted", Usage(20, 1, 10))
    assert log.figures().hit_rate == 0.5
    assert log.errors_since(0) == [], "a client that left is no error"


def test_very_many_phases_are_folded_and_nothing_is_left_out_of_their_sums(
    log: LiveRequests,
) -> None:
    request, described = opened(log), generation()
    request.describe("tiny", described)
    chunks = [Phase(names.SPAN_PREFILL, 10 + n, 11 + n, {names.ATTR_TOKENS: 1}) for n in range(30)]
    described.phase_log.extend([*chunks, Phase(names.EVENT_PREEMPTED, 12, 12)])
    record = only(log)
    prefills = [one for one in record.phases if one.name == names.SPAN_PREFILL]
    assert len(prefills) == MAX_PHASES_PER_NAME + 1
    assert sum(int(one.attributes[names.ATTR_TOKENS]) for one in prefills) == 30
    assert len(record.phases) == len(prefills) + 1


def test_a_refused_request_is_an_error_and_was_never_under_way(log: LiveRequests) -> None:
    request = opened(log)
    request.request_id = "mine"
    request.close(status=400, outcome="rejected", error="invalid_value")
    (error,) = log.errors_since(0)
    assert (error.request_id, error.trace_id) == ("mine", "a" * 32)
    assert (error.route, error.status, error.code) == ("/v1/completions", 400, "invalid_value")
    assert log.finished_since(0) == []


def test_a_failed_request_is_among_the_finished_ones_and_the_errors(log: LiveRequests) -> None:
    request = opened(log)
    request.describe("tiny", generation())
    request.close(status=503, outcome="error", error="engine_died")
    (record,), (error,) = log.finished_since(0), log.errors_since(0)
    assert (record.outcome, record.error, error.code) == ("error", "engine_died", "engine_died")
    assert (record.number, error.number, log.latest) == (1, 2, 2)


def test_only_the_latest_are_kept_and_only_newer_ones_are_told(log: LiveRequests) -> None:
    for number in range(MAX_FINISHED + 10):
        request = opened(log, f"req_{number}")
        request.describe("tiny", generation())
        request.close(status=500, outcome="error", error="internal_error")
    finished, errors = log.finished_since(0), log.errors_since(0)
    assert (len(finished), len(errors)) == (MAX_FINISHED, MAX_ERRORS)
    assert finished[-1].request_id == errors[-1].request_id == f"req_{MAX_FINISHED + 9}"
    numbers = [one.number or 0 for one in finished]
    assert log.finished_since(numbers[-2]) == finished[-1:]
    assert log.errors_since(errors[-3].number) == errors[-2:]
    assert (log.finished_since(log.latest), log.errors_since(log.latest)) == ([], [])


def test_of_many_under_way_the_oldest_are_told(log: LiveRequests) -> None:
    for number in range(5):
        opened(log, f"req_{number}").describe("tiny", generation())
    assert [one.request_id for one in log.under_way(2)] == ["req_0", "req_1"]
    assert log.num_under_way == 5
