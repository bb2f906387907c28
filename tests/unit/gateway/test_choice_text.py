"""ChoiceText: text, count and log-probabilities of one choice."""

from collections.abc import Sequence

import pytest

from gateway.choice_text import ChoiceText
from gateway.generation import LogprobEntry, TextDelta
from gateway.stop_strings import StopStrings
from gateway.tokenizer import Tokenizer
from runtime.messages import FinishReason, Sampling, TokenEvent, TokenLogprob
from tests.byte_tokenizer import IM_END, IM_START, byte_assets
from tests.fake_token_engine import fake_logprobs

TOKENIZER = Tokenizer(byte_assets())


def choice_text(*stops: str, min_tokens: int = 0, num_logprobs: int | None = None) -> ChoiceText:
    sampling = Sampling(max_tokens=64, min_tokens=min_tokens, num_logprobs=num_logprobs)
    scanner = StopStrings(stops).scanner()
    return ChoiceText(3, tokenizer=TOKENIZER, scanner=scanner, sampling=sampling)


def event(
    token_ids: Sequence[int],
    *,
    finish_reason: FinishReason | None = None,
    stop_token_id: int | None = None,
    num_logprobs: int | None = None,
) -> TokenEvent:
    return TokenEvent(
        request_id="r",
        choice=0,
        seq=0,
        token_ids=list(token_ids),
        logprobs=fake_logprobs(token_ids, num_logprobs),
        finish_reason=finish_reason,
        stop_token_id=stop_token_id,
    )


def feed_all(text: ChoiceText, steps: Sequence[Sequence[int]], *, k: int = 0) -> list[TextDelta]:
    """Feeds the steps, the last one as the end by length, until a stop."""
    deltas = []
    for index, step in enumerate(steps):
        reason: FinishReason | None = "length" if index == len(steps) - 1 else None
        deltas.append(text.feed(event(step, finish_reason=reason, num_logprobs=k)))
        if text.is_stopped:
            break
    return deltas


def joined(deltas: Sequence[TextDelta]) -> tuple[str, bytes, int]:
    raw = b"".join(entry.raw for delta in deltas for entry in delta.logprobs)
    return "".join(d.text for d in deltas), raw, sum(d.num_tokens for d in deltas)


def test_a_step_gives_its_text_and_its_number_of_tokens() -> None:
    delta = choice_text().feed(event(b"ab"))
    assert delta == TextDelta(choice=3, text="ab", num_tokens=2)


def test_the_token_that_ends_the_sequence_counts_and_has_no_text() -> None:
    text = choice_text(num_logprobs=0)
    delta = text.feed(
        event([*b"a", IM_END], finish_reason="stop", stop_token_id=IM_END, num_logprobs=0)
    )
    assert (delta.text, delta.num_tokens, len(delta.logprobs)) == ("a", 2, 1)
    assert not text.is_stopped


def test_a_stop_token_that_is_a_letter_has_no_text_either() -> None:
    delta = choice_text().feed(event(b"ab", finish_reason="stop", stop_token_id=ord("b")))
    assert delta.text == "a"


def test_tokens_after_the_one_that_completed_the_stop_do_not_count() -> None:
    text = choice_text("lo")
    delta = text.feed(event(b"hello wor"))
    assert (delta.text, delta.num_tokens, text.is_stopped) == ("hel", 5, True)


def test_usage_and_text_do_not_depend_on_how_the_engine_groups_tokens() -> None:
    tokens = b"hello END of"
    one_by_one = joined(feed_all(choice_text("END", num_logprobs=0), [[t] for t in tokens]))
    at_once = joined(feed_all(choice_text("END", num_logprobs=0), [tokens]))
    assert one_by_one == at_once == ("hello ", b"hello ", 9)


def test_held_back_tokens_wait_and_trimmed_ones_never_appear() -> None:
    deltas = feed_all(choice_text("END", num_logprobs=0), [b"a", b"E", b"N", b"D"])
    assert [len(delta.logprobs) for delta in deltas] == [1, 0, 0, 0]


def test_held_back_tokens_appear_when_the_stop_does_not_come() -> None:
    deltas = feed_all(choice_text("END", num_logprobs=0), [b"aE", b"x", b"E"])
    assert [(d.text, len(d.logprobs)) for d in deltas] == [("a", 1), ("Ex", 2), ("E", 1)]


def test_a_token_that_began_before_the_stop_keeps_its_bytes() -> None:
    # One token, "hello"; the stop begins inside it.
    deltas = feed_all(choice_text("lo", num_logprobs=0), [[262]])
    assert joined(deltas) == ("hel", b"hello", 1)


@pytest.mark.parametrize("group", [1, 2, 3, 5])
def test_the_bytes_of_all_entries_are_the_content(group: int) -> None:
    tokens = list("a🌍é漢".encode())
    steps = [tokens[start : start + group] for start in range(0, len(tokens), group)]
    content, raw, count = joined(feed_all(choice_text("zz", num_logprobs=0), steps, k=0))
    assert (content, raw, count) == ("a🌍é漢", content.encode(), len(tokens))


def test_a_partial_character_is_a_replacement_in_the_token_and_whole_in_the_bytes() -> None:
    deltas = feed_all(choice_text(num_logprobs=0), [[byte] for byte in "é".encode()])
    entries = [entry for delta in deltas for entry in delta.logprobs]
    assert [(entry.token, entry.raw) for entry in entries] == [
        ("\ufffd", b"\xc3"),
        ("\ufffd", b"\xa9"),
    ]


def test_an_unfinished_character_is_let_out_at_the_end() -> None:
    deltas = feed_all(choice_text(num_logprobs=0), [[*b"a", 0xC3]])
    assert joined(deltas) == ("a\ufffd", b"a\xc3", 2)


def test_a_control_token_in_the_middle_has_an_entry_without_bytes() -> None:
    deltas = feed_all(choice_text(num_logprobs=0), [[*b"a", IM_START, *b"b"]])
    assert joined(deltas) == ("ab", b"ab", 3)
    assert deltas[0].logprobs[1].token == "<|im_start|>"


def test_no_stop_is_matched_before_min_tokens() -> None:
    text = choice_text("b", min_tokens=3)
    assert text.feed(event(b"bbab")).text == "bba"
    assert (text.is_stopped, text.num_tokens) == (True, 4)


def test_the_best_are_sorted_and_exactly_as_many_as_asked_for() -> None:
    unsorted = TokenLogprob(logprob=-1.0, top=((97, -3.0), (98, -0.5), (99, -2.0)))
    given = TokenEvent(request_id="r", choice=0, seq=0, token_ids=[97], logprobs=[unsorted])
    (entry,) = choice_text(num_logprobs=2).feed(given).logprobs
    assert [(top.token, top.logprob) for top in entry.top] == [("b", -0.5), ("c", -2.0)]


@pytest.mark.parametrize("value", [float("-inf"), float("nan"), -1e9])
def test_log_probabilities_that_json_cannot_carry_are_clamped(value: float) -> None:
    given = TokenEvent(
        request_id="r",
        choice=0,
        seq=0,
        token_ids=[97],
        logprobs=[TokenLogprob(logprob=value, top=((98, value),))],
    )
    (entry,) = choice_text(num_logprobs=1).feed(given).logprobs
    assert entry == LogprobEntry(
        token="a", raw=b"a", logprob=-9999.0, top=(LogprobEntry("b", b"b", -9999.0),)
    )


def test_no_entries_without_the_wish_for_them() -> None:
    assert choice_text().feed(event(b"a", num_logprobs=1)).logprobs == ()
