"""One choice's text, count and log-probabilities are the same however the engine groups tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.choice_text import DEFAULTS, ChoiceText
from gateway.generation import TextOptions
from gateway.stop_strings import StopStrings
from gateway.tokenizer import Tokenizer
from runtime.messages import Sampling, TokenEvent
from tests.byte_tokenizer import IM_START, byte_assets
from tests.fake_token_engine import fake_logprobs

TOKENIZER = Tokenizer(byte_assets())
# Letters, whole and broken characters, a merged token and a control token.
tokens = st.lists(
    st.sampled_from([*b"abc", 0xC3, 0xA9, 0xF0, 0x80, 262, IM_START]), min_size=1, max_size=20
)
stop_lists = st.lists(st.sampled_from(["a", "bc", "abc", "é", "llo", "ohe", "\ufffda"]), max_size=3)


shown = st.builds(TextOptions, includes_stop=st.booleans(), keeps_special=st.booleans())


@dataclass(frozen=True)
class Outcome:
    text: str
    raw: bytes
    num_entries: int
    num_tokens: int
    is_stopped: bool


def outcome(
    token_ids: Sequence[int],
    *,
    stops: Sequence[str],
    min_tokens: int,
    cuts: Sequence[int],
    options: TextOptions = DEFAULTS,
    num_logprobs: int | None = 0,
) -> Outcome:
    """Feeds the tokens in the groups between the cuts."""
    scanner = StopStrings(stops).scanner(includes_stop=options.includes_stop)
    sampling = Sampling(max_tokens=99, min_tokens=min_tokens, num_logprobs=num_logprobs)
    text = ChoiceText(0, tokenizer=TOKENIZER, scanner=scanner, sampling=sampling, options=options)
    bounds = sorted({0, len(token_ids), *(cut % len(token_ids) for cut in cuts)})
    deltas = []
    for start, end in zip(bounds, bounds[1:], strict=False):
        chunk = list(token_ids[start:end])
        event = TokenEvent(
            request_id="r",
            choice=0,
            seq=0,
            token_ids=chunk,
            logprobs=fake_logprobs(chunk, 0),
            finish_reason="length" if end == len(token_ids) else None,
        )
        deltas.append(text.feed(event))
        if text.is_stopped:
            break
    entries = [entry for delta in deltas for entry in delta.logprobs]
    return Outcome(
        text="".join(delta.text for delta in deltas),
        raw=b"".join(entry.raw for entry in entries),
        num_entries=len(entries),
        num_tokens=sum(delta.num_tokens for delta in deltas),
        is_stopped=text.is_stopped,
    )


@given(tokens, stop_lists, st.integers(0, 6), st.lists(st.integers(0, 19), max_size=6), shown)
def test_grouping_changes_nothing(
    token_ids: list[int], stops: list[str], min_tokens: int, cuts: list[int], options: TextOptions
) -> None:
    rules: dict[str, Any] = {"stops": stops, "min_tokens": min_tokens, "options": options}
    grouped = outcome(token_ids, cuts=cuts, **rules)
    single = outcome(token_ids, cuts=range(20), **rules)
    assert grouped == single


@given(tokens, st.lists(st.integers(0, 19), max_size=6), shown)
def test_without_a_stop_every_token_has_its_entry_and_the_bytes_are_the_texts(
    token_ids: list[int], cuts: list[int], options: TextOptions
) -> None:
    result = outcome(token_ids, stops=["never comes"], min_tokens=0, cuts=cuts, options=options)
    assert result.num_entries == result.num_tokens == len(token_ids)
    assert result.raw.decode(errors="replace") == result.text


@given(tokens, stop_lists, st.integers(0, 6))
def test_a_stopped_text_is_the_whole_text_up_to_a_stop(
    token_ids: list[int], stops: list[str], min_tokens: int
) -> None:
    whole = outcome(token_ids, stops=[], min_tokens=0, cuts=range(20)).text
    result = outcome(token_ids, stops=stops, min_tokens=min_tokens, cuts=range(20))
    if not result.is_stopped:
        assert result.text == whole
        return
    assert any(whole.startswith(result.text + stop) for stop in stops)
    kept = outcome(
        token_ids,
        stops=stops,
        min_tokens=min_tokens,
        cuts=range(20),
        options=TextOptions(includes_stop=True),
    )
    assert whole.startswith(kept.text)
    assert any(kept.text == result.text + stop for stop in stops)
    assert kept.raw.decode(errors="replace").startswith(kept.text)
    assert min(min_tokens, len(token_ids)) <= result.num_tokens <= len(token_ids)


@given(tokens, st.lists(st.integers(0, 19), max_size=6), shown)
def test_an_answer_of_text_alone_has_the_text_of_one_with_more(
    token_ids: list[int], cuts: list[int], options: TextOptions
) -> None:
    rules: dict[str, Any] = {"stops": [], "min_tokens": 0, "cuts": cuts, "options": options}
    plain = outcome(token_ids, num_logprobs=None, **rules)
    full = outcome(token_ids, **rules)
    assert (plain.text, plain.num_tokens) == (full.text, full.num_tokens)
    assert plain.num_entries == 0
