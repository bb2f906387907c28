"""What becomes of wishes about the cache: which pins, how much stays, what is ignored."""

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.cache_plan import MAX_LOOKED_AT, CachedPrompt, CachePlan, ThoughtCut, plan_cache
from gateway.cache_wish import Breakpoint, CacheWish
from gateway.chat_template import ChatTemplate
from gateway.generation import ChatPrompt
from gateway.prompt_encoding import PromptEncoder, PromptLimits
from gateway.tokenizer import Tokenizer
from runtime.messages import CacheHints, Pin
from tests.byte_tokenizer import CHATML, byte_assets

TOKENIZER = Tokenizer(byte_assets())
HALF_HOUR = 1_800.0
CHAT = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
    {"role": "assistant", "content": "three"},
    {"role": "user", "content": "four"},
)
TEXT = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nonetwo<|im_end|>\n"
    "<|im_start|>assistant\nthree<|im_end|>\n<|im_start|>user\nfour<|im_end|>\n"
    "<|im_start|>assistant\n"
)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def point(
    message: int | None = None, part: int | None = None, ttl_s: float | None = None
) -> Breakpoint:
    return Breakpoint("messages.cache_control", HALF_HOUR, ttl_s, message, part)


def num_tokens(text: str) -> int:
    return len(TOKENIZER.encode(text, add_special=False))


def up_to(end: str) -> int:
    """How many tokens the prompt has up to the end of this text."""
    return num_tokens(TEXT[: TEXT.index(end) + len(end)])


async def plan_of(
    *points: Breakpoint,
    messages: Sequence[dict[str, Any]] = CHAT,
    template: str = CHATML,
    tools: tuple[dict[str, Any], ...] = (),
    use_cache: bool = True,
    keep: int | None = None,
    cut: ThoughtCut | None = None,
    **wish: Any,
) -> tuple[CachePlan, int]:
    """The plan, and the length of the prompt."""
    encoder = PromptEncoder(TOKENIZER, ChatTemplate(template, {}))
    prompt = ChatPrompt(tuple(messages), tools=tools)
    (token_ids,) = await encoder.encode([prompt], PromptLimits(4096, keep))
    cached = CachedPrompt(
        len(token_ids),
        messages=messages,
        breakpoints=points,
        positions=await encoder.locate(prompt, token_ids),
        cut=cut or ThoughtCut(),
    )
    encoder.close()
    return plan_cache(CacheWish(**wish), cached, use_cache=use_cache), len(token_ids)


async def test_without_a_wish_nothing_is_pinned_and_all_stays() -> None:
    plan, _ = await plan_of(owner="me", quota_bytes=7, key="chat")
    assert plan == CachePlan(True, CacheHints("me", 7, "chat"))


async def test_a_ttl_pins_the_whole_prompt_for_it() -> None:
    plan, length = await plan_of(ttl_s=60.0)
    assert plan == CachePlan(True, CacheHints(pins=(Pin(length, 60.0),)))


async def test_the_longer_of_ttl_and_retention_counts() -> None:
    plan, length = await plan_of(ttl_s=60.0, retention_s=86_400.0)
    assert plan.hints.pins == (Pin(length, 86_400.0),)
    assert plan.ignored == ()


async def test_a_breakpoint_pins_what_comes_before_it_exactly() -> None:
    plan, _ = await plan_of(point(0), point(1, 0), point(1, 1, ttl_s=5.0))
    assert plan.hints.pins == (
        Pin(up_to("brief."), HALF_HOUR),
        Pin(up_to("one"), HALF_HOUR),
        Pin(up_to("two"), 5.0),
    )
    assert plan.hints.keep_len is None
    assert plan.ignored == ()


@pytest.mark.parametrize(
    ("own", "of_all", "expected"),
    [(5.0, 60.0, 5.0), (None, 60.0, 60.0), (None, None, HALF_HOUR), (5.0, None, 5.0)],
)
async def test_a_breakpoint_has_its_own_time_or_the_requests_or_the_usual_one(
    own: float | None, of_all: float | None, expected: float
) -> None:
    plan, _ = await plan_of(point(0, ttl_s=own), ttl_s=of_all, is_explicit=True)
    assert plan.hints.pins == (Pin(up_to("brief."), expected),)


async def test_nothing_is_pinned_for_longer_than_the_server_allows() -> None:
    plan, length = await plan_of(point(0), ttl_s=9_999.0, max_ttl_s=60.0)
    assert plan.hints.pins == (Pin(up_to("brief."), 60.0), Pin(length, 60.0))
    assert plan.ignored == ()


async def test_a_server_that_pins_nothing_says_so() -> None:
    plan, _ = await plan_of(point(0), ttl_s=60.0, retention_s=1.0, max_ttl_s=0.0)
    assert plan.hints.pins == ()
    assert plan.ignored == (
        "messages.cache_control",
        "prompt_cache_options.ttl",
        "prompt_cache_retention",
    )


async def test_the_four_longest_pins_are_taken_and_the_others_named() -> None:
    plan, length = await plan_of(point(0), point(1, 0), point(1, 1), point(2), ttl_s=60.0)
    ends = [pin.num_tokens for pin in plan.hints.pins]
    assert ends == [up_to("one"), up_to("two"), up_to("three"), length]
    assert plan.ignored == ("messages.cache_control",)


async def test_two_marks_at_one_place_are_one_pin_for_the_longer_time() -> None:
    plan, _ = await plan_of(point(0, ttl_s=5.0), point(0, ttl_s=50.0), point(0, ttl_s=7.0))
    assert plan.hints.pins == (Pin(up_to("brief."), 50.0),)
    assert plan.ignored == ()


async def test_explicit_leaves_nothing_behind_the_last_breakpoint() -> None:
    plan, _ = await plan_of(point(0), point(1), is_explicit=True, retention_s=86_400.0)
    end = up_to("two")
    assert plan.is_used
    assert plan.hints.keep_len == end
    assert plan.hints.pins == (Pin(up_to("brief."), HALF_HOUR), Pin(end, 86_400.0))


@pytest.mark.parametrize("wish", [{"is_explicit": True}, {"use_cache": False}])
async def test_explicit_without_a_breakpoint_is_without_the_cache(wish: dict[str, Any]) -> None:
    plan, _ = await plan_of(**wish, owner="me", ttl_s=60.0, retention_s=60.0)
    assert not plan.is_used
    assert plan.hints == CacheHints(owner="me")
    assert plan.ignored == ("prompt_cache_options.ttl", "prompt_cache_retention")


async def test_breakpoints_of_a_request_without_the_cache_are_named() -> None:
    plan, _ = await plan_of(point(0), use_cache=False)
    assert (plan.is_used, plan.ignored) == (False, ("messages.cache_control",))


async def test_a_place_that_is_not_known_falls_back_to_a_message_before_and_is_named() -> None:
    shouting = CHATML.replace("message['content']", "message['content'] | upper")
    plan, _ = await plan_of(point(1, 0), template=shouting, is_explicit=True)
    end = up_to("brief.<|im_end|>\n")
    assert plan.hints.pins == (Pin(end, HALF_HOUR),)
    assert plan.hints.keep_len == end
    assert plan.ignored == ("messages.cache_control",)


async def test_where_no_place_is_known_nothing_is_pinned_and_an_explicit_request_leaves_none() -> (
    None
):
    plan, _ = await plan_of(point(1), keep=5, is_explicit=True)
    assert plan.hints == CacheHints(keep_len=0)
    assert plan.is_used
    assert plan.ignored == ("messages.cache_control",)


async def test_without_positions_breakpoints_are_named() -> None:
    cached = CachedPrompt(9, breakpoints=[point(0)])
    plan = plan_cache(CacheWish(), cached, use_cache=True)
    assert plan == CachePlan(True, CacheHints(), ("messages.cache_control",))


async def test_of_many_breakpoints_the_latest_are_looked_at() -> None:
    messages = [{"role": "user", "content": f"word {n}"} for n in range(200)]
    points = [point(n) for n in range(200)]
    plan, _ = await plan_of(*points, messages=messages)
    assert len(plan.hints.pins) == 4
    assert plan.ignored == ("messages.cache_control",)
    assert MAX_LOOKED_AT < 200


async def test_tools_end_before_the_first_words_of_a_turn() -> None:
    plan, length = await plan_of(point(), tools=(TOOL,))
    (pin,) = plan.hints.pins
    encoder = PromptEncoder(TOKENIZER, ChatTemplate(CHATML, {}))
    text = encoder.render(ChatPrompt(CHAT, tools=(TOOL,)))
    encoder.close()
    assert '"name": "f"' in text
    assert pin.num_tokens == num_tokens(text[: text.index("onetwo")])
    assert plan.ignored == ()


async def test_the_end_of_tools_without_a_turn_falls_back_to_the_system() -> None:
    plan, _ = await plan_of(point(), messages=CHAT[:1], tools=(TOOL,))
    (pin,) = plan.hints.pins
    assert pin.num_tokens == up_to("brief.")
    assert plan.ignored == ("messages.cache_control",)


async def test_thoughts_are_cut_beside_all_wishes() -> None:
    cut = ThoughtCut(keep_len=30, dropped_from=9)
    plan, length = await plan_of(cut=cut, ttl_s=60.0)
    assert plan.hints == CacheHints(pins=(Pin(length, 60.0),), keep_len=30, dropped_from=9)
    plan, _ = await plan_of(point(0), cut=cut, is_explicit=True)
    assert plan.hints.keep_len == up_to("brief.") < 30


def test_each_prompt_of_a_request_is_a_family_of_its_own() -> None:
    wish = CacheWish(key="k", ttl_s=5.0)
    keys = [
        plan_cache(wish, CachedPrompt(9, index=index), use_cache=True).hints.key
        for index in range(3)
    ]
    assert keys == ["k", "k.1", "k.2"]
    assert plan_cache(CacheWish(), CachedPrompt(9, index=2), use_cache=True).hints.key == ""
