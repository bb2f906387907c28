"""What parameters of sampling do to the tokens of a tiny random model, over HTTP."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from runtime.model_source import open_model
from tests.constrained_model import load_byte_model
from tests.gateway_harness import CHAT, COMPLETIONS, chat, completion
from tests.real_model import RealModel
from tests.whole_path import WholePath, serving, stepped_engine

# A model on cores that other work may share.
pytestmark = pytest.mark.timeout(120)

NUM_TOKENS = 24
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
HOT: dict[str, Any] = {"temperature": 2, "ignore_eos": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> RealModel:
    return load_byte_model(tmp_path_factory.mktemp("tiny") / "bytes")


@pytest.fixture
async def path(model: RealModel) -> AsyncIterator[WholePath]:
    assets = open_model(model.config.model).text
    engine = stepped_engine(
        model.executor, model.info, assets=assets, max_running=8, max_step_tokens=64
    )
    async with serving(engine, assets=assets) as path:
        yield path
        engine.assert_idle()


async def choices(path: WholePath, prompt: Any = "Once", **parameters: Any) -> list[list[int]]:
    """The tokens of each choice."""
    body = completion(prompt, return_token_ids=True, **{"max_tokens": NUM_TOKENS, **parameters})
    async with path.client() as client:
        answer = await client.post(COMPLETIONS, json=body)
    assert answer.status_code == 200, answer.text
    return [choice["token_ids"] for choice in answer.json()["choices"]]


async def tokens(path: WholePath, prompt: Any = "Once", **parameters: Any) -> list[int]:
    (found,) = await choices(path, prompt, **parameters)
    return found


async def test_a_seed_decides_what_is_drawn_and_nothing_at_temperature_zero(
    path: WholePath,
) -> None:
    assert await tokens(path, **GREEDY, seed=1) == await tokens(path, **GREEDY, seed=2)
    first = await tokens(path, **HOT, seed=1)
    assert first == await tokens(path, **HOT, seed=1)
    assert first != await tokens(path, **HOT, seed=2)
    assert await tokens(path, **HOT) != await tokens(path, **HOT)


async def test_each_choice_has_its_own_draws_and_the_same_ones_again(path: WholePath) -> None:
    three = await choices(path, **HOT, seed=7, n=3)
    assert three == await choices(path, **HOT, seed=7, n=3)
    assert len({tuple(one) for one in three}) == 3
    assert three[0] == await tokens(path, **HOT, seed=7)


@pytest.mark.parametrize(
    "filters", [{"top_k": 1}, {"top_p": 0}, {"top_p": 1e-6}, {"min_p": 1}, {"temperature": 1e-9}]
)
async def test_a_filter_that_leaves_one_token_leaves_the_best(
    path: WholePath, filters: dict[str, Any]
) -> None:
    greedy = await tokens(path, **GREEDY)
    assert await tokens(path, **{**HOT, **filters}, seed=3) == greedy
    assert await tokens(path, **HOT, seed=3) != greedy


async def test_filters_narrow_what_is_drawn(path: WholePath) -> None:
    async def drawn(**filters: Any) -> set[int]:
        once = {**HOT, "max_tokens": 1, "n": 16, **filters}
        rounds = [await choices(path, **once, seed=seed) for seed in range(3)]
        return {token for found in rounds for (token,) in found}

    wide = await drawn()
    for filters in ({"top_k": 5}, {"top_p": 0.1}, {"min_p": 0.3}):
        narrow = await drawn(**filters)
        assert 1 < len(narrow) < len(wide), filters
        assert len(narrow) <= filters.get("top_k", len(narrow))


async def test_penalties_count_what_was_generated_and_only_repetition_counts_the_prompt(
    path: WholePath,
) -> None:
    (best,) = await tokens(path, [5, 6, 7], **GREEDY, max_tokens=1)
    prompt = [best] * 20 + [5, 6, 7]
    (usual, *_) = plain = await tokens(path, prompt, **GREEDY)
    everything = [token for token in range(3, 256) if not 40 <= token < 50]
    for penalty in ({"frequency_penalty": 2}, {"presence_penalty": 2}):
        told = await tokens(path, prompt, **GREEDY, **penalty)
        assert told[0] == usual, "the prompt was counted"
        assert Counter(told).most_common(1)[0][1] <= Counter(plain).most_common(1)[0][1]
        assert len(set(told)) > len(set(plain)) or len(set(plain)) == NUM_TOKENS
        again = await tokens(path, prompt, **GREEDY, **{next(iter(penalty)): -2})
        assert len(set(again)) < len(set(told)), "a negative one makes repetition likelier"
    # With the other kind beside it, the sampler knows the prompt as well.
    both = {"frequency_penalty": 2, "repetition_penalty": 1.0001, "logit_bias": {str(best): 30}}
    assert (await tokens(path, prompt, **GREEDY, **both)).count(best) > 8
    first = (await tokens(path, everything, **GREEDY, repetition_penalty=10, max_tokens=1))[0]
    assert (await tokens(path, everything, **GREEDY, max_tokens=1))[0] in everything
    assert first not in everything


async def test_a_bias_makes_a_token_sure_or_impossible(path: WholePath) -> None:
    greedy = await tokens(path, **GREEDY)
    best = greedy[0]
    other = next(token for token in range(40, 60) if token not in greedy)
    assert await tokens(path, **GREEDY, logit_bias={str(other): 100}) == [other] * NUM_TOKENS
    assert best not in await tokens(path, **GREEDY, logit_bias={str(best): -100})


async def test_a_stop_token_ends_the_answer_and_is_no_part_of_its_text(path: WholePath) -> None:
    greedy = await tokens(path, **GREEDY)
    stop = next(token for token in greedy[1:] if token != greedy[0])
    place = greedy.index(stop)
    async with path.client() as client:
        body = completion("Once", **GREEDY, return_token_ids=True, max_tokens=NUM_TOKENS)
        whole = (await client.post(COMPLETIONS, json=body)).json()["choices"][0]
        (choice,) = (
            await client.post(COMPLETIONS, json={**body, "stop_token_ids": [stop]})
        ).json()["choices"]
        late = (
            await client.post(
                COMPLETIONS,
                json={**body, "stop_token_ids": [stop], "min_tokens": place + 2},
            )
        ).json()["choices"][0]
    assert (choice["token_ids"], choice["finish_reason"]) == (greedy[: place + 1], "stop")
    assert whole["text"].startswith(choice["text"])
    assert choice["text"] != whole["text"]
    assert len(late["token_ids"]) >= place + 2
    assert stop not in late["token_ids"][: place + 2]


async def test_the_end_of_sequence_waits_for_min_tokens_and_for_ever_if_ignored(
    path: WholePath, model: RealModel
) -> None:
    ends = {str(token_id): 100 for token_id in model.info.eos_token_ids}
    wishes: dict[str, Any] = {"temperature": 0, "logit_bias": ends}
    assert len(await tokens(path, **wishes)) == 1
    assert len(await tokens(path, **wishes, min_tokens=5)) == 6
    ignored = await tokens(path, **wishes, ignore_eos=True)
    assert len(ignored) == NUM_TOKENS
    assert set(ignored).isdisjoint(model.info.eos_token_ids)


async def test_allowed_tokens_and_bad_words_decide_what_may_come(
    path: WholePath, model: RealModel
) -> None:
    assert set(await tokens(path, **GREEDY, allowed_token_ids=[50, 51])) <= {50, 51}
    (letter,) = model.encode("k")
    sure = {"logit_bias": {str(letter): 50}}
    assert await tokens(path, **GREEDY, **sure) == [letter] * NUM_TOKENS
    assert letter not in await tokens(path, **GREEDY, **sure, bad_words=["k"])
    twice = await tokens(path, **GREEDY, **sure, bad_words=["kk"])
    assert letter in twice
    assert (letter, letter) not in zip(twice, twice[1:], strict=False)


async def test_top_logprobs_are_sorted_and_hold_the_token_that_won(path: WholePath) -> None:
    async with path.client() as client:
        body = chat("Once", **GREEDY, max_tokens=8, logprobs=True, top_logprobs=20)
        entries = (await client.post(CHAT, json=body)).json()["choices"][0]["logprobs"]["content"]
    assert len(entries) == 8
    for entry in entries:
        values = [best["logprob"] for best in entry["top_logprobs"]]
        assert len(values) == 20
        assert values == sorted(values, reverse=True)
        assert entry["logprob"] in values, "only an end that is ignored is better"
