"""What a choice was in the midst of when it ended without the runtime's word."""

import pytest

from gateway.open_phases import OpenPhases
from runtime.messages import AttributeValue, Phase, TokenEvent
from telemetry import names

NOW_NS = 1_000


def phase(name: str, start_ns: int, end_ns: int, **attributes: AttributeValue) -> Phase:
    return Phase(name, start_ns, end_ns, dict(attributes))


QUEUE = phase(names.SPAN_QUEUE, 100, 200)
MATCH = Phase(names.SPAN_CACHE_MATCH, 200, 210, {names.ATTR_COMPUTED_TOKENS: 8})
CHUNK = Phase(names.SPAN_PREFILL, 210, 300, {names.ATTR_TOKENS: 5})
REST = Phase(names.SPAN_PREFILL, 300, 400, {names.ATTR_TOKENS: 3})
PREEMPTED = phase(names.EVENT_PREEMPTED, 700, 700)
COMPILED = phase(names.SPAN_GRAMMAR_COMPILE, 100, 150)
DECODED = phase(names.SPAN_DECODE, 400, 800)


def told(*phases: Phase, tokens: int = 0, admitted: bool = False) -> TokenEvent:
    return TokenEvent("r", 0, 0, token_ids=[1] * tokens, admitted=admitted, phases=list(phases))


ADMITTED = told(QUEUE, MATCH, CHUNK, admitted=True)
FIRST = told(REST, tokens=1)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], [("queue", 50)]),
        ([told(COMPILED)], [("queue", 50)]),
        ([ADMITTED], [("prefill", 300)]),
        ([told(admitted=True)], [("prefill", 50)]),
        ([ADMITTED, FIRST], [("decode", 400)]),
        ([told(admitted=True), told(tokens=1)], [("decode", NOW_NS - 10)]),
        # no tokens are told of an answer that is held back
        ([ADMITTED, told(REST)], [("decode", 400)]),
        ([ADMITTED, told(PREEMPTED)], [("queue", 700)]),
        ([ADMITTED, FIRST, told(PREEMPTED)], [("queue", 700), ("decode", 400)]),
        (
            [ADMITTED, FIRST, told(PREEMPTED), told(phase(names.SPAN_QUEUE, 700, 800), MATCH)],
            [("decode", 400)],
        ),
        ([ADMITTED, FIRST, told(DECODED)], [("queue", 800)]),
    ],
    ids=[
        "at once",
        "before admission",
        "prefill",
        "admitted without phases",
        "decode",
        "decode without phases",
        "held back",
        "preempted in prefill",
        "preempted in decode",
        "resumed",
        "between two parts",
    ],
)
def test_what_is_open_follows_from_what_was_told(
    events: list[TokenEvent], expected: list[tuple[str, int]]
) -> None:
    phases = OpenPhases(50)
    for event in events:
        phases.note(event, now_ns=NOW_NS - 10)
    closed = phases.close(3, now_ns=NOW_NS, num_tokens=0)
    assert [(one.name, one.start_ns) for one in closed] == expected
    assert {one.end_ns for one in closed} == {NOW_NS}
    assert {one.attributes[names.ATTR_CHOICE] for one in closed} == {3}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], False),
        ([ADMITTED], False),
        ([ADMITTED, told(REST)], True),
        ([ADMITTED, told(REST), told(DECODED)], True),
        ([ADMITTED, FIRST, told(PREEMPTED)], True),
    ],
    ids=["waits", "computes a part", "is held back", "between two parts", "preempted"],
)
def test_a_prompt_is_computed_once_decode_began(events: list[TokenEvent], expected: bool) -> None:
    phases = OpenPhases(50)
    for event in events:
        phases.note(event, now_ns=NOW_NS)
    assert phases.has_decoded is expected


def test_what_is_closed_says_how_far_it_came() -> None:
    phases = OpenPhases(50)
    for event in (ADMITTED, FIRST, told(PREEMPTED)):
        phases.note(event, now_ns=NOW_NS)
    queue, decode = phases.close(0, now_ns=NOW_NS, num_tokens=4, reason="stop")
    assert queue.attributes == {names.ATTR_CHOICE: 0, names.ATTR_PREEMPTIONS: 1}
    assert decode.attributes == {
        names.ATTR_CHOICE: 0,
        names.ATTR_TOKENS: 4,
        names.ATTR_PREEMPTIONS: 1,
        names.ATTR_FINISH_REASON: "stop",
    }


def test_no_phase_starts_after_its_end_when_clocks_differ() -> None:
    (queue,) = OpenPhases(NOW_NS + 5).close(0, now_ns=NOW_NS, num_tokens=0)
    assert (queue.start_ns, queue.end_ns) == (NOW_NS, NOW_NS)
