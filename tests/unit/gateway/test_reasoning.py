"""Which markers a model has, what a prompt leaves open, where the block of an answer ends."""

import pytest

from gateway.reasoning import KNOWN_MARKERS, Markers, ReasoningBlock, answer_start, find_markers
from gateway.tokenizer import Tokenizer
from grammar.spec import Reasoning
from runtime.errors import ConfigError
from tests.byte_tokenizer import IM_END, IM_START, byte_assets
from tests.reasoning_model import END_THINK, THINK, reasoning_assets, token_ids

TOKENIZER = Tokenizer(reasoning_assets())
MARKERS = Markers(THINK, END_THINK)
OPEN = Reasoning(end_ids=(END_THINK,), is_open=True)
MAY_OPEN = Reasoning(end_ids=(END_THINK,), start_ids=(THINK,))


@pytest.mark.parametrize("is_special", [False, True])
@pytest.mark.parametrize("template", ["{# <think> #}", "{% if '</think>' in content %}"])
def test_markers_are_tokens_of_which_the_template_speaks(template: str, is_special: bool) -> None:
    tokenizer = Tokenizer(reasoning_assets(is_special=is_special))
    assert find_markers("auto", tokenizer, template=template) == MARKERS


@pytest.mark.parametrize("template", [None, "", "think", "[THINK]"])
def test_a_template_that_does_not_speak_of_them_is_of_a_model_that_does_not_reason(
    template: str | None,
) -> None:
    assert find_markers("auto", TOKENIZER, template=template) is None


@pytest.mark.parametrize("pair", KNOWN_MARKERS)
def test_a_tokenizer_without_such_tokens_has_no_markers(pair: tuple[str, str]) -> None:
    assert find_markers("auto", Tokenizer(byte_assets()), template="".join(pair)) is None


def test_the_setting_names_markers_of_which_no_template_speaks() -> None:
    assert find_markers("<think>,</think>", TOKENIZER, template=None) == MARKERS
    others = Markers(IM_START, THINK)
    assert find_markers("<|im_start|>,<think>", TOKENIZER, template="</think>") == others


def test_the_setting_switches_them_off() -> None:
    assert find_markers("none", TOKENIZER, template="<think>") is None


@pytest.mark.parametrize(
    "setting",
    [
        "[THINK],[/THINK]",  # unknown
        "hello,</think>",  # a token, but one that is merged
        "<think>,<think>",
        "<think>,<|im_end|>",  # ends answers
    ],
)
def test_markers_of_the_setting_that_cannot_be_recognized_end_the_start(setting: str) -> None:
    with pytest.raises(ConfigError, match="reasoning_markers"):
        find_markers(setting, TOKENIZER, template="<think>")


@pytest.mark.parametrize(
    ("prompt", "reasoning"),
    [
        ("assistant\n", MAY_OPEN),
        ("", MAY_OPEN),
        ("assistant\n<think>\n", OPEN),
        ("assistant\n<think>", OPEN),
        ("assistant\n<think>\n\n</think>\n\n", None),
        ("assistant</think>", None),
        ("what is <think>? assistant\n", MAY_OPEN),
        ("<think>old</think>answer assistant\n", MAY_OPEN),
    ],
)
def test_the_last_words_of_a_template_decide_what_the_answer_may_begin_with(
    prompt: str, reasoning: Reasoning | None
) -> None:
    assert MARKERS.after_chat(token_ids(prompt), TOKENIZER) == reasoning


@pytest.mark.parametrize(
    ("prompt", "reasoning"),
    [
        ("plain", None),
        ("<think>", OPEN),
        ("<think>\nLet me see:", OPEN),
        ("<think>a</think>b<think>c", OPEN),
        ("<think>a</think>b", None),
        ("</think>", None),
    ],
)
def test_a_prompt_without_template_is_gated_where_it_ends_inside_a_block(
    prompt: str, reasoning: Reasoning | None
) -> None:
    assert MARKERS.after_text(token_ids(prompt)) == reasoning


# By what an answer may begin with: its block, and what follows it.
ANSWERS = [
    (OPEN, "hm</think>", "[5]"),
    (OPEN, "</think>", "[5]"),
    (OPEN, "a<think>b</think>", "</think>"),
    (OPEN, "never ends", ""),
    (MAY_OPEN, "<think>hm</think>", "<think>[5]"),
    (MAY_OPEN, "<think>", ""),
    (MAY_OPEN, "", "[5]"),
    (MAY_OPEN, "", "x<think>a</think>"),
    (MAY_OPEN, "", "</think>"),
    (MAY_OPEN, "", ""),
]


@pytest.mark.parametrize(("reasoning", "block", "answer"), ANSWERS)
def test_the_answer_starts_after_the_first_end_marker(
    reasoning: Reasoning, block: str, answer: str
) -> None:
    ids = token_ids(block + answer)
    assert answer_start(ids, reasoning) == len(token_ids(block))
    assert answer_start(ids, None) == 0


@pytest.mark.parametrize(("reasoning", "block", "answer"), ANSWERS)
def test_the_text_of_a_block_has_no_markers_of_its_own(
    reasoning: Reasoning, block: str, answer: str
) -> None:
    taken = ReasoningBlock(reasoning, TOKENIZER)
    texts = [taken.feed(token_id) for token_id in token_ids(block)]
    assert [taken.feed(token_id) for token_id in token_ids(answer)] == [None] * len(
        token_ids(answer)
    )
    inner = block if reasoning.is_open else block.removeprefix("<think>")
    assert "".join(text for text in texts if text is not None) == inner.removesuffix("</think>")
    assert None not in texts


def test_a_character_that_the_block_leaves_unfinished_ends_with_it() -> None:
    block = ReasoningBlock(OPEN, TOKENIZER)
    first, *_ = "\u00e9".encode()
    assert [block.feed(first), block.feed(END_THINK), block.flush()] == ["", "\ufffd", ""]
    cut = ReasoningBlock(OPEN, TOKENIZER)
    assert [cut.feed(first), cut.flush()] == ["", "\ufffd"]


def test_control_tokens_in_a_block_have_no_text() -> None:
    assert ReasoningBlock(OPEN, TOKENIZER).feed(IM_END) == ""
