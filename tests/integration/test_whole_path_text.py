"""A tiny real model in float32 behind HTTP: the text does not depend on how it is asked for."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec
import pytest
from tokenizers import Tokenizer

from runtime.batch import Executor
from runtime.config import RuntimeConfig
from runtime.messages import EngineInfo
from runtime.model_source import open_model
from runtime.text_assets import TextAssets
from tests.fake_token_engine import INFO
from tests.gateway_harness import CHAT, COMPLETIONS, chat, completion
from tests.greedy_driver import drive_greedily
from tests.sse_machine import check_chat_stream
from tests.tiny_model import write_tiny_model
from tests.whole_path import WholePath, serving, stepped_engine

MAX_STEP_TOKENS = 64
NUM_TOKENS = 32
# More than one chunk of prefill.
PROMPT = "Whoever asks for a stream gets the words that all the others get, only sooner. " * 2


@dataclass(frozen=True, slots=True)
class TinyModel:
    executor: Executor
    info: EngineInfo
    assets: TextAssets

    def decode(self, token_ids: list[int]) -> str:
        text: str = Tokenizer.from_str(self.assets.tokenizer_json).decode(token_ids)
        return text

    def encode(self, text: str) -> list[int]:
        return list(Tokenizer.from_str(self.assets.tokenizer_json).encode(text).ids)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    # Imported here: nothing else in this module needs torch.
    from runtime.model_runner import load_executor

    config = RuntimeConfig(
        model=str(write_tiny_model(tmp_path_factory.mktemp("tiny"))),
        dtype="float32",
        device="cpu",
        kv_memory_bytes=8 * 1024 * 1024,
        num_threads=1,
    )
    source = open_model(config.model)
    loaded = load_executor(source, config)
    info = msgspec.structs.replace(
        INFO,
        dtype=loaded.dtype,
        vocab_size=loaded.vocab_size,
        eos_token_ids=tuple(source.text.eos_token_ids),
        max_model_len=loaded.max_model_len,
        page_size=loaded.page_size,
        num_pages=loaded.num_pages,
        kv_root=loaded.kv_root,
    )
    return TinyModel(loaded.executor, info, source.text)


@pytest.fixture
async def path(tiny: TinyModel) -> AsyncIterator[WholePath]:
    engine = stepped_engine(
        tiny.executor,
        tiny.info,
        assets=tiny.assets,
        max_running=8,
        max_step_tokens=MAX_STEP_TOKENS,
    )
    async with serving(engine, assets=tiny.assets) as path:
        yield path


def body(prompt: str = PROMPT, **parameters: Any) -> dict[str, Any]:
    return chat(
        prompt, **{"temperature": 0, "max_tokens": NUM_TOKENS, "ignore_eos": True, **parameters}
    )


@dataclass(frozen=True, slots=True)
class Said:
    """What an answer says, however it was sent."""

    texts: list[str]
    finish_reasons: list[str | None]
    logprobs: list[list[Any]]
    usage: dict[str, Any]

    @property
    def num_cached_tokens(self) -> int:
        num_cached: int = self.usage["prompt_tokens_details"]["cached_tokens"]
        return num_cached

    @property
    def words(self) -> tuple[Any, ...]:
        """What must be the same to the letter."""
        tokens = [[entry["token"] for entry in choice] for choice in self.logprobs]
        return self.texts, self.finish_reasons, tokens

    @property
    def logprob_values(self) -> list[float]:
        return [
            candidate["logprob"]
            for choice in self.logprobs
            for entry in choice
            for candidate in (entry, *entry["top_logprobs"])
        ]


async def ask_whole(client: httpx2.AsyncClient, parameters: Mapping[str, Any]) -> Said:
    response = await client.post(CHAT, json=dict(parameters))
    assert response.status_code == 200, response.text
    answer = response.json()
    choices = answer["choices"]
    return Said(
        texts=[choice["message"]["content"] for choice in choices],
        finish_reasons=[choice["finish_reason"] for choice in choices],
        logprobs=[(choice.get("logprobs") or {"content": []})["content"] for choice in choices],
        usage=answer["usage"],
    )


async def ask_streamed(client: httpx2.AsyncClient, parameters: Mapping[str, Any]) -> Said:
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    response = await client.post(CHAT, json={**parameters, **streamed})
    assert response.status_code == 200, response.text
    num_choices = int(parameters.get("n", 1))
    answer = check_chat_stream(response.content, num_choices=num_choices, includes_usage=True)
    assert answer.usage is not None
    return Said(answer.texts, answer.finish_reasons, answer.logprobs, answer.usage)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"temperature": 1.3, "seed": 11},
        {"temperature": 1.0, "seed": 5, "n": 3, "top_p": 0.9},
        {"logprobs": True, "top_logprobs": 3},
        {"temperature": 1.0, "seed": 3, "structured_outputs": {"regex": "[a-z]{3,9}( [a-z]+){4}"}},
        {"repetition_penalty": 1.3, "frequency_penalty": 0.4},
    ],
    ids=["greedy", "sampled", "choices", "logprobs", "constrained", "penalties"],
)
async def test_streamed_or_whole_cached_or_not_the_answer_is_the_same(
    path: WholePath, parameters: dict[str, Any]
) -> None:
    async with path.client() as client:
        cold = await ask_whole(client, body(**parameters, cache_salt="whole first"))
        streamed_cold = await ask_streamed(client, body(**parameters, cache_salt="stream first"))
        streamed_warm = await ask_streamed(client, body(**parameters, cache_salt="whole first"))
        warm = await ask_whole(client, body(**parameters, cache_salt="stream first"))
        other = await ask_whole(client, body("Something else", **parameters))
    assert cold.words == streamed_cold.words == streamed_warm.words == warm.words
    assert (cold.logprobs, cold.usage) == (streamed_cold.logprobs, streamed_cold.usage)
    assert (warm.logprobs, warm.usage) == (streamed_warm.logprobs, streamed_warm.usage)
    # Sums of a prompt in one piece and of its last token alone are rounded differently.
    assert warm.logprob_values == pytest.approx(cold.logprob_values, abs=1e-4)
    assert len(cold.logprob_values) == (4 * NUM_TOKENS if "logprobs" in parameters else 0)
    num_prompt = cold.usage["prompt_tokens"]
    assert (cold.num_cached_tokens, warm.num_cached_tokens) == (0, num_prompt - 1)
    assert set(other.texts).isdisjoint(cold.texts)


async def test_stop_strings_cut_streamed_and_whole_answers_at_the_same_character(
    path: WholePath,
) -> None:
    async with path.client() as client:
        full = (await ask_whole(client, body())).texts[0]
        printable = re.search("[ -~]{4}", full[5:])
        assert printable is not None, full
        stop = printable[0]
        whole = await ask_whole(client, body(stop=["never said", stop]))
        streamed = await ask_streamed(client, body(stop=["never said", stop]))
    assert whole.texts == [full[: full.index(stop)]]
    assert whole.words == streamed.words
    assert whole.finish_reasons == ["stop"]


async def test_eight_at_once_streamed_and_whole_say_what_each_says_alone(path: WholePath) -> None:
    prompts = [f"{PROMPT}{'abcdefgh'[number] * number}" for number in range(8)]
    async with path.client() as client:
        together = await asyncio.gather(
            *(
                (ask_streamed if number % 2 else ask_whole)(client, body(prompt))
                for number, prompt in enumerate(prompts)
            )
        )
        alone = [
            await ask_whole(client, body(prompt, cache_salt=str(number)))
            for number, prompt in enumerate(prompts)
        ]
    assert [said.words for said in together] == [said.words for said in alone]
    assert len({said.texts[0] for said in alone}) == len(prompts)
    path.engine.assert_idle()


async def test_the_text_is_that_of_the_tokens_which_the_model_itself_gives(
    path: WholePath, tiny: TinyModel
) -> None:
    prompt = "Without a scheduler, without a cache, seven tokens a step."
    (sampled,) = drive_greedily(
        tiny.executor, [tiny.encode(prompt)], num_tokens=NUM_TOKENS, chunk_len=7
    )
    token_ids = [one.token_id for one in sampled if one.token_id is not None]
    assert set(token_ids).isdisjoint(tiny.info.eos_token_ids)
    async with path.client() as client:
        response = await client.post(
            COMPLETIONS, json=completion(prompt, temperature=0, max_tokens=NUM_TOKENS)
        )
    assert response.json()["choices"][0]["text"] == tiny.decode(token_ids)
