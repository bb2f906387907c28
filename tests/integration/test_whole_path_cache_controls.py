"""What stays in the cache, for whom and for how long: as clients and keys say, over the whole path.

Answers are letters that no merge joins, so that the next turn of a chat has the tokens of the last.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from runtime.batch import SampleRow
from tests.byte_tokenizer import IM_END
from tests.byte_tokenizer import VOCAB_SIZE as BYTES
from tests.fake_executor import FakeExecutor
from tests.fake_token_engine import INFO
from tests.gateway_harness import CHAT, COMPLETIONS, MODEL, chat, completion
from tests.key_files import key_file
from tests.reasoning_model import (
    KEEPS,
    MAY_THINK,
    QWEN_LIKE,
    THINKS,
    THINKS_NOT,
    VOCAB_SIZE,
    reasoning_assets,
    token_ids,
)
from tests.whole_path import PAGE_SIZE, byte_engine, serving, stepped_engine

Message = dict[str, Any]
TTL = {"ttl": "10m"}
PAGE_BYTES = 128 * 1024


def saying(tokens: Sequence[int], executor: FakeExecutor, start: int) -> None:
    """Every answer to a prompt of `start` tokens is these tokens."""

    def choose(history: tuple[int, ...], _row: SampleRow) -> int:
        place = len(history) - start
        return tokens[place] if place < len(tokens) else IM_END

    executor.choose = choose


def spelling(history: tuple[int, ...], row: SampleRow) -> int:
    """Up to a dozen letters that depend on what came before."""
    digest = sum(history) + len(history) * 7 + row.choice
    return IM_END if digest % 13 == 0 else ord("pqruvxyz"[digest % 8])


def num_pages(num_tokens: int) -> int:
    return -(-num_tokens // PAGE_SIZE)


def details(answer: httpx2.Response) -> tuple[int, int, int, int]:
    """Tokens of the prompt, of these cached and written, and tokens of the answer."""
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    found = usage["prompt_tokens_details"]
    return (
        usage["prompt_tokens"],
        found["cached_tokens"],
        found["cache_write_tokens"],
        usage["completion_tokens"],
    )


def cached(answer: httpx2.Response) -> int:
    return details(answer)[1]


def text_of(letter: str, number: int = 160) -> str:
    return letter * number


async def ask(client: httpx2.AsyncClient, prompt: str, key: str = "", **parameters: Any) -> int:
    """How much of the prompt was cached."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    body = completion(prompt, max_tokens=1, **parameters)
    return cached(await client.post(COMPLETIONS, json=body, headers=headers))


async def fill(client: httpx2.AsyncClient, count: int = 12, **parameters: Any) -> None:
    """Many other prompts, more than the pool has room for."""
    for number in range(count):
        await ask(client, f"{number} " + text_of("f", 200), **parameters)


# Turns


async def test_each_turn_finds_all_of_the_last_ones_prompt_and_answer() -> None:
    engine = byte_engine(FakeExecutor(PAGE_SIZE, BYTES, spelling))
    messages: list[Message] = [{"role": "system", "content": "Use few letters. " * 5}]
    known = 0
    async with serving(engine) as server, server.client() as client:
        for turn in range(6):
            messages.append({"role": "user", "content": f"Turn {turn}, my dear."})
            body = {"model": MODEL, "messages": messages, "max_tokens": 40}
            answer = await client.post(CHAT, json=body)
            prompt, found, written, said = details(answer)
            assert (found, found + written) == (known, prompt)
            known = prompt + said - 1  # the token that ended the answer was not computed
            (choice,) = answer.json()["choices"]
            assert choice["finish_reason"] == "stop"
            messages.append({"role": "assistant", "content": choice["message"]["content"]})


class Thinker:
    """A model that says the same each time, behind a template."""

    def __init__(self, template: str, said: str) -> None:
        self.executor = FakeExecutor(PAGE_SIZE, VOCAB_SIZE)
        self.assets = reasoning_assets(template)
        self.said = token_ids(said)
        info = msgspec.structs.replace(
            INFO, num_pages=256, max_model_len=1024, page_size=PAGE_SIZE, vocab_size=VOCAB_SIZE
        )
        self.engine = stepped_engine(
            self.executor, info, assets=self.assets, max_running=4, max_step_tokens=256
        )

    async def ask(
        self, client: httpx2.AsyncClient, messages: Sequence[Message], **more: Any
    ) -> tuple[int, int, Message]:
        """Tokens of the prompt, those of them that were cached, and the answer's message."""
        counted = await client.post("/tokenize", json={"model": MODEL, "messages": messages})
        saying(self.said, self.executor, counted.json()["count"])
        body = {"model": MODEL, "messages": messages, "max_tokens": 100, **more}
        answer = await client.post(CHAT, json=body)
        prompt, found, _, said = details(answer)
        assert said == len(self.said) + 1
        return prompt, found, answer.json()["choices"][0]["message"]

    @property
    def num_cached_pages(self) -> int:
        return self.engine.runtime.stats().pages_cached


FIRST: Message = {"role": "user", "content": "What do you think of the sea, and of ships?"}
SECOND: Message = {"role": "user", "content": "And of rain?"}
THOUGHT = "<think>\n" + "u" * 50 + "\n</think>\n\nvvv"
THOUGHT_ON = "u" * 50 + "\n</think>\n\nvvv"


@pytest.mark.parametrize(
    ("template", "said", "num_diverging"),
    [
        (MAY_THINK, THOUGHT, 0),
        (QWEN_LIKE, THOUGHT, 0),
        (THINKS, THOUGHT_ON, len(token_ids("<think>\n"))),
        (THINKS_NOT, "vvv", len(token_ids("<think>\n\n</think>\n\n"))),
    ],
)
async def test_what_the_next_turn_lacks_of_an_answer_is_not_kept(
    template: str, said: str, num_diverging: int
) -> None:
    model = Thinker(template, said)
    async with serving(model.engine, assets=model.assets) as server, server.client() as client:
        prompt, _, answer = await model.ask(client, [FIRST])
        common = prompt - num_diverging
        assert model.num_cached_pages == num_pages(common), "no page is dead"
        kept = {"role": "assistant", "content": answer["content"].strip()}
        longer, found, _ = await model.ask(client, [FIRST, kept, SECOND])
        assert found == common
        assert model.num_cached_pages == num_pages(longer - num_diverging)


async def test_what_the_template_keeps_of_thoughts_is_found_again() -> None:
    model = Thinker(KEEPS, THOUGHT)
    async with serving(model.engine, assets=model.assets) as server, server.client() as client:
        prompt, _, answer = await model.ask(client, [FIRST])
        kept = {
            "role": "assistant",
            "content": answer["content"].strip(),
            "reasoning_content": answer["reasoning_content"].strip(),
        }
        _, found, _ = await model.ask(client, [FIRST, kept, SECOND])
    assert found == prompt + len(model.said)


async def test_an_answer_without_thoughts_is_kept_whole() -> None:
    model = Thinker(QWEN_LIKE, "vvv")
    async with serving(model.engine, assets=model.assets) as server, server.client() as client:
        prompt, _, answer = await model.ask(client, [FIRST])
        kept = {"role": "assistant", "content": answer["content"]}
        _, found, _ = await model.ask(client, [FIRST, kept, SECOND])
    assert found == prompt + 3


# Time


@pytest.mark.parametrize("wish", [{"prompt_cache_options": TTL}, {"prompt_cache_retention": "24h"}])
async def test_a_pinned_prompt_outlives_newer_ones_and_its_time_does_not(
    wish: dict[str, Any],
) -> None:
    engine = byte_engine(num_pages=64)
    forever: Any = {
        "queue_timeout_s": 0,
        "request_timeout_s": 0,
    }  # the engine's clock is put forward
    async with serving(engine, **forever) as server, server.client() as client:
        await ask(client, text_of("a"))
        await ask(client, text_of("b"), **wish)
        await fill(client)
        assert await ask(client, text_of("a")) == 0
        assert await ask(client, text_of("b")) >= 144
        engine.clock.skip(87_000)
        await fill(client)
        assert await ask(client, text_of("b")) == 0


async def test_a_breakpoint_outlives_newer_prompts_and_what_is_behind_it_does_not() -> None:
    engine = byte_engine(num_pages=64)
    parts = [
        {"type": "text", "text": text_of("a", 100), "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": text_of("b", 100)},
    ]
    async with serving(engine) as server, server.client() as client:
        await client.post(CHAT, json=chat(parts, max_tokens=1))
        whole = cached(await client.post(CHAT, json=chat(parts, max_tokens=1)))
        await fill(client)
        left = cached(await client.post(CHAT, json=chat(parts, max_tokens=1)))
    assert whole > 200
    assert num_pages(106) - 1 <= left // PAGE_SIZE <= num_pages(106)


async def test_explicit_breakpoints_are_all_that_is_left() -> None:
    engine = byte_engine()
    parts = [
        {
            "type": "text",
            "text": text_of("a", 100),
            "prompt_cache_breakpoint": {"mode": "explicit"},
        },
        {"type": "text", "text": text_of("b", 100)},
    ]
    wish = {"prompt_cache_options": {"mode": "explicit"}, "max_tokens": 30}
    async with serving(engine) as server, server.client() as client:
        for known in (0, 106, 106):
            prompt, found, written, _ = details(await client.post(CHAT, json=chat(parts, **wish)))
            assert (found, written) == (known, 106 - known)
            assert engine.runtime.stats().pages_cached == num_pages(106)
        await client.post(CHAT, json=chat(text_of("c"), **wish))
    assert prompt > 206
    assert engine.runtime.stats().pages_cached == num_pages(106), "without a mark nothing is left"


async def test_a_newer_prompt_of_a_family_takes_the_place_of_the_older() -> None:
    engine = byte_engine(num_pages=64)
    async with serving(engine) as server, server.client() as client:
        for letter in "ab":
            wish: Any = {"prompt_cache_options": TTL, "prompt_cache_key": "family"}
            await ask(client, text_of(letter, 100), **wish)
        await fill(client)
        assert await ask(client, text_of("b", 100)) >= 96
        await fill(client)
        assert await ask(client, text_of("a", 100)) == 0


async def test_pins_never_keep_a_prompt_out() -> None:
    engine = byte_engine(num_pages=32, max_model_len=512)
    async with serving(engine) as server, server.client() as client:
        for letter in "abcdefgh":
            await ask(client, text_of(letter, 200), prompt_cache_options=TTL)
        answer = await client.post(COMPLETIONS, json=completion(text_of("z", 500), max_tokens=8))
    assert details(answer)[3] == 8


# Owners


async def test_tenants_find_nothing_of_each_other_unless_a_group_says_so(tmp_path: Path) -> None:
    keys = {
        "alone": {"tenant": "alone"},
        "other": {"tenant": "other"},
        "one": {"tenant": "one", "cache_group": "both"},
        "two": {"tenant": "two", "cache_group": "both"},
        "both": {"tenant": "both"},  # is no member of the group of its name
        "strange": {"tenant": "strange", "cache_group": "alone"},
    }
    path = str(key_file(tmp_path, keys))
    async with serving(byte_engine(), key_file=path) as server, server.client() as client:
        prompt = text_of("a", 100)
        assert [await ask(client, prompt, key) for key in keys] == [0, 0, 0, 99, 0, 0]
        assert [await ask(client, prompt, key) for key in keys] == [99] * 6
        salted = [await ask(client, prompt, key, cache_salt="one") for key in keys]
        assert salted == [0, 0, 0, 99, 0, 0]


async def test_a_quota_bounds_what_an_owner_keeps_and_takes_from_nobody_else(
    tmp_path: Path,
) -> None:
    keys: Any = {"small": {"tenant": "small", "cache_quota_mb": 1}, "free": {"tenant": "free"}}
    engine = byte_engine(page_bytes=PAGE_BYTES)
    path = str(key_file(tmp_path, keys))
    async with serving(engine, key_file=path) as server, server.client() as client:
        await ask(client, text_of("a", 120), "free")
        num_free = engine.runtime.stats().pages_cached
        for letter in "abc":
            await ask(client, text_of(letter, 80), "small")
            assert engine.runtime.stats().pages_cached - num_free <= 8
        assert await ask(client, text_of("c", 80), "small") == 79
        assert await ask(client, text_of("a", 80), "small") == 0
        assert await ask(client, text_of("a", 120), "free") == 119


async def test_choices_and_clients_that_come_together_share_one_prefill() -> None:
    engine = byte_engine(FakeExecutor(PAGE_SIZE, BYTES, spelling))
    async with serving(engine) as server, server.client() as client:
        body = completion(text_of("a", 400), n=4, max_tokens=5)
        prompt, found, written, _ = details(await client.post(COMPLETIONS, json=body))
        assert (prompt, found, written) == (400, 0, 400)
        assert engine.runtime.stats().computed_prompt_tokens <= 400 + 3 * PAGE_SIZE
