"""Events on their way to the gateways."""

from runtime.finish_rules import Ending
from runtime.messages import Abort, EngineFault, ErrorCode, TokenLogprob
from runtime.outbox import Outbox
from runtime.request import Sequence
from tests.engine_harness import GATEWAY, make_sequence

FAULT = EngineFault(ErrorCode.INVALID_REQUEST, "no")


def test_a_step_makes_one_event_of_all_that_happened_to_a_choice() -> None:
    outbox, sequence = Outbox(), make_sequence([1, 2])
    outbox.add_admitted(sequence)
    sequence.token_ids.append(9)
    outbox.add_tokens(sequence, [9], TokenLogprob(-0.5))
    outbox.add_finish(sequence, Ending("stop", stop_token_id=9))
    ((event,),) = outbox.take().values()
    assert (event.token_ids, event.logprobs, event.admitted) == ([9], [TokenLogprob(-0.5)], True)
    assert (event.finish_reason, event.stop_token_id, event.seq) == ("stop", 9, 0)
    assert event.usage is not None
    assert event.usage.completion_tokens == 1


def test_events_of_one_choice_are_numbered_from_zero_on() -> None:
    outbox, sequence = Outbox(), make_sequence([1])
    numbers = []
    for _ in range(3):
        outbox.add_phases(sequence)
        numbers.append(outbox.take()[GATEWAY][0].seq)
    assert numbers == [0, 1, 2]


def test_phases_leave_with_the_event() -> None:
    outbox, sequence = Outbox(), make_sequence([1])
    sequence.phases.admitted(5)
    outbox.add_admitted(sequence)
    assert [phase.name for phase in outbox.take()[GATEWAY][0].phases] == ["queue"]


def test_what_was_dropped_is_not_sent_and_its_number_not_used() -> None:
    outbox, sequence = Outbox(), make_sequence([1])
    outbox.add_admitted(sequence)
    outbox.drop(sequence)
    assert outbox.is_empty
    assert outbox.take() == {}
    assert sequence.num_events == 0


def test_rejections_reach_their_gateway_choice_by_choice() -> None:
    outbox = Outbox()
    outbox.add_rejection(b"a", "x", choices=range(2), fault=FAULT)
    outbox.add_rejection(b"b", "x", choices=range(1), fault=FAULT)
    events = outbox.take()
    assert [(event.choice, event.error) for event in events[b"a"]] == [(0, FAULT), (1, FAULT)]
    assert len(events[b"b"]) == 1
    assert outbox.is_empty


def test_an_abort_takes_back_only_what_it_names() -> None:
    outbox = Outbox()
    outbox.add_rejection(b"a", "x", choices=range(2), fault=FAULT)
    outbox.add_rejection(b"b", "x", choices=range(2), fault=FAULT)
    outbox.drop_rejections(b"a", Abort("x", 1))
    outbox.drop_rejections(b"b")
    assert [event.choice for event in outbox.take()[b"a"]] == [0]


def scored_sequence() -> Sequence:
    sequence = make_sequence([1, 2, 3], num_prompt_logprobs=0)
    sequence.add_scores([TokenLogprob(-1.5), TokenLogprob(-2.5)])
    return sequence


def test_the_first_token_brings_the_scores_of_the_prompt() -> None:
    outbox, sequence = Outbox(), scored_sequence()
    events = []
    for token_id in (8, 9):
        outbox.add_phases(sequence)
        events += outbox.take()[GATEWAY]
        outbox.add_tokens(sequence, [token_id], None)
        events += outbox.take()[GATEWAY]
    scores = [[score.logprob for score in event.prompt_logprobs] for event in events]
    assert scores == [[], [-1.5, -2.5], [], []]


def test_the_end_of_a_choice_without_a_token_brings_them_too() -> None:
    outbox, sequence = Outbox(), scored_sequence()
    outbox.add_finish(sequence, Ending("length"))
    ((event,),) = outbox.take().values()
    assert [score.logprob for score in event.prompt_logprobs] == [-1.5, -2.5]
    assert (event.token_ids, event.finish_reason) == ([], "length")
