"""The official client, its types strictly checked, against the default model."""

from itertools import pairwise

import pytest

from tests.conformance.openai_client import *  # noqa: F403
from tests.conformance.openai_responses import *  # noqa: F403
from tests.conformance.target import Target
from tests.model_file import needs_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), needs_model]


@pytest.fixture(scope="module")
def target(server: Target) -> Target:
    return server


async def test_same_seed_gives_the_same_text_streamed_or_not(target: Target) -> None:
    body = target.chat("Name a fruit and a city.", temperature=1.0, seed=7)
    async with target.openai() as client:
        whole = await client.chat.completions.create(**body)
        stream = await client.chat.completions.create(**body, stream=True)
        chunks = [chunk async for chunk in stream]
        other = await client.chat.completions.create(**{**body, "seed": 8})
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert text != other.choices[0].message.content


async def test_choices_of_one_request_differ_and_share_its_prompt(target: Target) -> None:
    body = target.chat("Name a fruit and a city.", temperature=1.0, seed=7)
    async with target.openai() as client:
        alone = await client.chat.completions.create(**body)
        both = await client.chat.completions.create(**body, n=2)
    texts = [choice.message.content for choice in both.choices]
    assert texts[0] == alone.choices[0].message.content
    assert texts[1] != texts[0]
    assert alone.usage is not None
    assert both.usage is not None
    assert both.usage.prompt_tokens == alone.usage.prompt_tokens
    assert both.usage.completion_tokens == 24


async def test_stream_helper_reports_the_text_as_it_grows(target: Target) -> None:
    snapshots: list[str] = []
    async with (
        target.openai() as client,
        client.chat.completions.stream(
            **target.chat(), extra_body={"structured_outputs": {"regex": "(ab){6}"}}
        ) as stream,
    ):
        async for event in stream:
            if event.type == "content.delta":
                snapshots.append(event.snapshot)
    assert snapshots[-1] == "ab" * 6
    assert len(snapshots) > 1
    assert all(after.startswith(before) for before, after in pairwise(snapshots))


async def test_token_ids_are_the_prompt_that_they_spell(target: Target) -> None:
    ids = [504, 2365, 6354, 16438]  # "The quick brown fox" in this vocabulary
    async with target.openai() as client:
        spelled = await client.completions.create(**target.completion("The quick brown fox"))
        listed = await client.completions.create(**target.completion([ids, ids]))
    texts = [choice.text for choice in listed.choices]
    assert texts == [spelled.choices[0].text] * 2
    assert listed.usage is not None
    assert listed.usage.prompt_tokens == 2 * len(ids)


async def test_legacy_logprobs_spell_the_text(target: Target) -> None:
    async with target.openai() as client:
        answer = await client.completions.create(**target.completion(), logprobs=1)
    choice = answer.choices[0]
    assert choice.logprobs is not None
    tokens, offsets = choice.logprobs.tokens, choice.logprobs.text_offset
    assert tokens is not None
    assert offsets is not None
    assert "".join(tokens) == choice.text
    lengths = [after - before for before, after in pairwise(offsets)]
    assert lengths == [len(token) for token in tokens[:-1]]
