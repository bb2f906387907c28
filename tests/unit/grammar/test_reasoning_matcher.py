"""Free reasoning before the constrained answer: opened by the prompt, by the model, or not."""

import random

import numpy as np
import pytest

from grammar.ending_matcher import VocabularyBits
from grammar.matcher import Matcher, compile_constraint
from grammar.reasoning_matcher import ReasoningMatcher
from grammar.spec import ConstraintSpec, Reasoning
from tests.engine_harness import EOS, VOCAB_SIZE
from tests.fake_grammar import ScriptMatcher
from tests.grammar_walk import Texts
from tests.small_vocabulary import END, END_OF_TURN

# Tokens of the fake vocabulary.
OPEN, OPEN_2, CLOSE, CLOSE_2, YES, NO, OTHER = 11, 12, 21, 22, 31, 32, 41
ANSWER = [[YES, NO], [YES]]
BITS = VocabularyBits(vocab_size=VOCAB_SIZE, eos_token_ids=(EOS,))
ONE_TOKEN = Reasoning(end_ids=(CLOSE,), start_ids=(OPEN,))
TWO_TOKENS = Reasoning(end_ids=(CLOSE, CLOSE_2), start_ids=(OPEN, OPEN_2))
FREE = set(range(VOCAB_SIZE)) - {EOS}


def matcher(reasoning: Reasoning, answer: list[list[int]] = ANSWER) -> ReasoningMatcher:
    return ReasoningMatcher(ScriptMatcher(answer, len(answer)), reasoning, BITS)


def opened(reasoning: Reasoning) -> ReasoningMatcher:
    return matcher(Reasoning(end_ids=reasoning.end_ids, is_open=True))


def allowed(of: Matcher) -> set[int]:
    row = np.zeros(BITS.num_words, dtype=np.int32)
    of.fill(row)
    return set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())


def test_a_block_that_the_prompt_opened_is_free_up_to_its_end() -> None:
    gate = opened(ONE_TOKEN)
    for token_id in (OTHER, YES, OPEN, CLOSE):
        assert allowed(gate) == FREE
        assert not gate.is_accepting()
        assert gate.forced_tokens() == []
        assert gate.accept([token_id]) == 1
    assert allowed(gate) == {YES, NO}


def test_the_end_of_sequence_does_not_end_the_reasoning() -> None:
    gate = opened(ONE_TOKEN)
    assert gate.accept([OTHER, EOS, CLOSE]) == 1
    assert not gate.is_terminated()


def test_the_answer_is_the_inner_matchers_to_its_end() -> None:
    gate = opened(ONE_TOKEN)
    assert gate.accept([OTHER, CLOSE, NO, OTHER]) == 3
    assert gate.forced_tokens() == [YES]
    assert gate.accept([YES, EOS]) == 2
    assert gate.is_accepting()
    assert gate.is_terminated()
    assert allowed(gate) == {EOS}


def test_the_model_may_open_the_block_or_answer_at_once() -> None:
    assert allowed(matcher(ONE_TOKEN)) == {OPEN, YES, NO}
    thinking, answering = matcher(ONE_TOKEN), matcher(ONE_TOKEN)
    assert thinking.accept([OPEN, YES, CLOSE, YES]) == 4
    assert answering.accept([YES]) == 1
    assert allowed(thinking) == allowed(answering) == {YES}
    assert answering.accept([OPEN]) == 0


def test_a_choice_between_block_and_answer_is_not_forced() -> None:
    assert matcher(ONE_TOKEN, [[YES]]).forced_tokens() == []
    assert matcher(Reasoning(end_ids=(CLOSE,)), [[YES]]).forced_tokens() == [YES]


def test_a_block_may_be_opened_once_only() -> None:
    gate = matcher(ONE_TOKEN)
    assert gate.accept([OPEN, CLOSE, OPEN]) == 2
    assert allowed(gate) == {YES, NO}


def test_markers_of_several_tokens_must_come_in_a_row() -> None:
    gate = matcher(TWO_TOKENS)
    assert gate.accept([OPEN]) == 1
    assert allowed(gate) == {OPEN_2}
    assert gate.forced_tokens() == [OPEN_2]
    assert gate.accept([OPEN_2, CLOSE_2, CLOSE, OTHER, CLOSE_2, CLOSE]) == 6
    assert allowed(gate) == FREE
    assert gate.accept([CLOSE, CLOSE_2]) == 2
    assert allowed(gate) == {YES, NO}


def test_an_end_marker_lies_inside_the_block() -> None:
    """Its first token was the start marker's."""
    gate = matcher(Reasoning(end_ids=(OPEN, CLOSE), start_ids=(OPEN,)))
    assert gate.accept([OPEN]) == 1
    for one in (gate.fork(), gate):
        assert one.accept([CLOSE]) == 1
        assert allowed(one) == FREE


def test_an_answer_that_begins_like_the_marker_stays_possible() -> None:
    gate = matcher(TWO_TOKENS, [[OPEN], [YES], [NO]])
    assert allowed(gate) == {OPEN}
    assert gate.accept([OPEN]) == 1
    assert allowed(gate) == {OPEN_2, YES}
    thinking = gate.fork()
    assert gate.accept([YES, NO]) == 2
    assert gate.is_accepting()
    assert thinking.accept([OPEN_2, CLOSE, CLOSE_2, OPEN, YES, NO]) == 6
    assert thinking.is_accepting()


@pytest.mark.parametrize("reasoning", [ONE_TOKEN, TWO_TOKENS])
def test_rollback_restores_each_mask_over_all_phases(reasoning: Reasoning) -> None:
    gate = matcher(reasoning)
    tokens = [*reasoning.start_ids, OTHER, *reasoning.end_ids, NO, YES, EOS]
    masks = []
    for token_id in tokens:
        masks.append(allowed(gate))
        assert gate.accept([token_id]) == 1
    for num_tokens in range(1, len(tokens) + 1):
        back = gate.fork()
        back.rollback(num_tokens)
        assert allowed(back) == masks[-num_tokens]
        assert back.accept(tokens[-num_tokens:]) == num_tokens
    with pytest.raises(ValueError, match="cannot roll back"):
        gate.rollback(len(tokens) + 1)
    assert gate.is_terminated()


def test_forks_go_their_own_ways() -> None:
    gate = opened(ONE_TOKEN)
    fork = gate.fork()
    gate.accept([CLOSE, YES])
    assert allowed(fork) == FREE
    assert allowed(gate) == {YES}


def test_text_that_the_grammar_forbids_is_free_before_the_answer(
    llguidance: object, texts: Texts
) -> None:
    inner = compile_constraint(llguidance, ConstraintSpec("regex", "[0-9]{2}", "llguidance"))  # type: ignore[arg-type]
    end_ids = tuple(texts.encode("</think>"))
    bits = VocabularyBits(
        vocab_size=texts.vocabulary.vocab_size, eos_token_ids=texts.vocabulary.eos_token_ids
    )
    gate = ReasoningMatcher(inner, Reasoning(end_ids=end_ids, is_open=True), bits)
    thoughts = texts.encode("let me see: 7 and 3</think>")
    assert gate.accept(thoughts) == len(thoughts)
    for _ in range(2):
        row = texts.walk(gate, random.Random(1))
        assert texts.decode(row).isdigit()
        assert len(texts.decode(row)) == 2
        gate.rollback(len(end_ids))
        assert not texts.allowed(gate) & {END, END_OF_TURN}
        assert gate.accept(end_ids) == len(end_ids)
