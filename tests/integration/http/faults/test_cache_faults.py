"""Faults of prefix caches that other servers were reported for: pages of another key or of nobody,
hits that are counted wrongly, equal hashes."""

import asyncio
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_cache import PrefixCache
from tests.byte_tokenizer import VOCAB_SIZE
from tests.e2e.scrape import scrape
from tests.fake_executor import FakeExecutor
from tests.gateway_harness import CHAT, COMPLETIONS, chat, completion, error_of
from tests.raw_client import connection, raw_request
from tests.waiting import until
from tests.whole_path import PAGE_SIZE, WholePath, byte_engine, serving


def cached(answer: httpx2.Response) -> int:
    assert answer.status_code == 200, answer.text
    count: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return count


def said(answer: httpx2.Response) -> str:
    text: str = answer.json()["choices"][0]["text"]
    return text


PROMPT = "The prompt of one who is not to know what others have asked. " * 3
# Whatever makes another cache of it, and what a client could write to be taken for another.
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"cache_salt": "a"},
    {"extra_key": "b"},
    {"cache_salt": "ab"},
    {"cache_salt": "None"},
    {"cache_salt": "adapter"},
    {"cache_salt": "a\x00b"},
    {"cache_salt": " a"},
    {"cache_salt": "0" * 64},
)


async def test_no_page_is_reused_under_another_salt_however_it_is_written() -> None:
    """llama.cpp#26207, vllm#30931, #42125, sglang#24638: a key equal to the id of an adapter had
    the adapter's pages."""
    async with serving(byte_engine()) as server, server.client() as client:
        answers = {}
        for variant in VARIANTS:
            body = completion(PROMPT, max_tokens=20, ignore_eos=True, seed=1, **variant)
            cold = await client.post(COMPLETIONS, json=body)
            warm = await client.post(COMPLETIONS, json=body)
            num_tokens = warm.json()["usage"]["prompt_tokens"]
            assert (cached(cold), cached(warm)) == (0, num_tokens - 1), variant
            answers[str(variant)] = {said(cold), said(warm)}
        same = await client.post(COMPLETIONS, json=completion(PROMPT, extra_key="a", max_tokens=1))
        assert cached(same) == num_tokens - 1, "extra_key is another name of cache_salt"
        adapter = await client.post(COMPLETIONS, json=completion(PROMPT, lora_path="adapter"))
    assert (adapter.status_code, error_of(adapter)["param"]) == (400, "lora_path")
    # The model says the same to all of them, as only its pages are apart.
    assert len(set().union(*answers.values())) == 1


class Abandoned:
    """Requests with one long prompt that are left while it is computed."""

    def __init__(self, server: WholePath, body: dict[str, Any]) -> None:
        self._server = server
        self._raw = raw_request(body)
        self.num_submitted = 0

    async def leave_after(self, num_steps: int) -> None:
        engine, num_lost = self._server.engine, len(self._server.lost_at)
        async with connection(self._server.base_url) as writer:
            writer.write(self._raw)
            self.num_submitted += 1
            await until(lambda: len(engine.submitted) == self.num_submitted)
            for _ in range(num_steps):
                await engine.step()
        while len(self._server.lost_at) == num_lost or engine.runtime.has_work():
            await engine.step()


async def test_a_prompt_that_was_left_fifty_times_is_answered_as_if_it_never_had_been() -> None:
    """sglang#38355: pages entered the tree in the middle of a prefill, and were freed by the abort:
    from then on every hit was garbage."""
    long = "It is left again and again, at another place each time. " * 8
    wishes = {"max_tokens": 30, "ignore_eos": True, "seed": 3}
    executor = FakeExecutor(PAGE_SIZE, VOCAB_SIZE)  # which finds every page that is another's
    engine = byte_engine(executor, num_pages=80, max_running=2, max_step_tokens=48)
    async with serving(engine) as server, server.client() as client:
        cold = await client.post(CHAT, json=chat(long, **wishes, cache_prompt=False))
        engine.hold()
        abandoned = Abandoned(server, chat(long, **wishes, stream=True))
        abandoned.num_submitted = 1
        for number in range(50):
            await abandoned.leave_after(number % 12)
            engine.assert_idle()
        engine.release()
        warm = await client.post(CHAT, json=chat(long, **wishes))
        again = await client.post(CHAT, json=chat(long, **wishes))
    texts = [one.json()["choices"][0]["message"]["content"] for one in (cold, warm, again)]
    assert texts == [texts[0]] * 3
    assert cached(cold) == 0
    assert cached(again) == again.json()["usage"]["prompt_tokens"] - 1
    assert cached(warm) > 0


async def test_what_is_recomputed_after_a_preemption_is_no_hit() -> None:
    """vllm#25780: a third of what was computed on random prompts counted as found."""
    engine = byte_engine(num_pages=16, max_model_len=256)
    async with serving(engine) as server, server.client() as client:
        for number in range(8):  # answers seem to be short
            body = completion([number], max_tokens=1, cache_prompt=False)
            assert (await client.post(COMPLETIONS, json=body)).status_code == 200

        async def ask(first: int, max_tokens: int) -> httpx2.Response:
            prompt = [first, *range(first, first + 59)]
            body = completion(prompt, max_tokens=max_tokens, ignore_eos=True)
            return await client.post(COMPLETIONS, json=body)

        # The pool is full behind 68 tokens of each; the first ends soon after, and leaves most
        # of the other's pages where it finds them.
        answers = await asyncio.gather(ask(100, 75), ask(101, 120))
        engine.beat()
        await until(lambda: engine.stats == engine.runtime.stats())
        metrics = await scrape(client)
    assert [cached(answer) for answer in answers] == [0, 0]
    assert metrics["radixgate_cached_tokens_total"] == engine.stats.cached_tokens == 0
    assert metrics["radixgate_preemptions_total"] == 1
    assert 0 < metrics["radixgate_recomputed_tokens_total"] < 60
    num_prompt = 8 + 2 * 60
    assert metrics["radixgate_computed_prompt_tokens_total"] == num_prompt
    assert metrics["radixgate_prompt_tokens_total"] == num_prompt


@pytest.mark.parametrize("num_shared", [1, 7, PAGE_SIZE - 1, PAGE_SIZE, PAGE_SIZE + 1, 240])
async def test_a_shared_prefix_is_found_to_the_token_and_counted_alike_everywhere(
    num_shared: int,
) -> None:
    """vllm#54607: a prefix shorter than a block was no hit, and nothing said why."""
    shared = [97 + number % 26 for number in range(num_shared)]
    async with serving(byte_engine()) as server, server.client() as client:
        told = []
        for own in (b"1234567", b"7654321", b"1234765"):
            body = completion([*shared, *own], max_tokens=2)
            told.append(cached(await client.post(COMPLETIONS, json=body)))
        metrics = await scrape(client)
    assert told == [0, num_shared, num_shared + 4]
    assert metrics["radixgate_cached_tokens_total"] == sum(told)
    stats = server.engine.runtime.stats()
    assert stats.cached_tokens == sum(told)
    assert stats.cached_tokens + stats.computed_prompt_tokens == 3 * (num_shared + 7)


ALIKE = bytes(32)
RUNS = st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=12)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.lists(RUNS, min_size=1, max_size=8), RUNS)
def test_sequences_with_equal_hashes_share_what_is_equal_and_nothing_more(
    known: list[list[int]], asked: list[int]
) -> None:
    """vllm#12621, #15297, openvino.genai#3722, aibrix#749: a hash decided, and could be made."""
    cache = PrefixCache(num_pages=64, page_size=2, identity_root=bytes(32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prefix_cache.page_keys.page_key", lambda _parent, _page: 7)
        patch.setattr(
            "prefix_cache.page_notes.packed_page_identity", lambda _parent, _tokens: ALIKE
        )
        for tokens in known:
            lease = cache.acquire(b"n", tokens, max_tokens=len(tokens))
            cache.extend(lease, -(-len(tokens) // 2) - len(lease.page_ids))
            cache.release_tail(lease)
            cache.release(lease, tokens)
        found = cache.peek(b"n", asked)
    longest = max(
        next((n for n, (a, b) in enumerate(zip(one, asked, strict=False)) if a != b),
             min(len(one), len(asked)))
        for one in known
    )  # fmt: skip
    assert found == longest
    cache.check_invariants()
