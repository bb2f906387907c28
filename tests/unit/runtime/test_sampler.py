"""Choosing tokens: greedy, drawn, edited, masked; each row by itself."""

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from runtime.batch import SampledToken, SamplePlan, SampleRow
from runtime.messages import Sampling
from runtime.sampler import sample

VOCAB = 70  # not a multiple of 32
LOGITS = torch.linspace(-3.0, 3.0, VOCAB)[torch.randperm(VOCAB, generator=torch.manual_seed(0))]
BEST = int(LOGITS.argmax())


def row(*, choice: int = 0, position: int = 0, **fields: Any) -> SampleRow:
    names = ("prompt_ids", "output_ids", "forbid_ids", "mask")
    own = {name: fields.pop(name) for name in names if name in fields}
    return SampleRow(Sampling(max_tokens=1, **fields), choice, position, **own)


def greedy(**fields: Any) -> SampleRow:
    return row(temperature=0.0, **fields)


def mask_of(*allowed: int) -> npt.NDArray[np.int32]:
    bits = np.zeros(96, dtype=np.uint8)
    bits[list(allowed)] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)[None]


def choose(
    *rows: SampleRow, logits: torch.Tensor = LOGITS, masks: npt.NDArray[np.int32] | None = None
) -> list[SampledToken]:
    return list(sample(logits.repeat(len(rows), 1), SamplePlan(rows, masks)))


def token(
    one: SampleRow, logits: torch.Tensor = LOGITS, masks: npt.NDArray[np.int32] | None = None
) -> int | None:
    return choose(one, logits=logits, masks=masks)[0].token_id


def draws(count: int, logits: torch.Tensor, **fields: Any) -> Counter[int | None]:
    rows = [row(position=position, **fields) for position in range(count)]
    return Counter(sampled.token_id for sampled in choose(*rows, logits=logits))


def test_temperature_zero_takes_the_best_token() -> None:
    assert token(greedy()) == BEST


@pytest.mark.parametrize("temperature", [1e-6, 1e-40, 5e-324])
@pytest.mark.parametrize("filters", [{}, {"top_k": 3}, {"top_p": 0.9}])
def test_a_temperature_too_small_to_divide_by_takes_the_best_token(
    temperature: float, filters: dict[str, Any]
) -> None:
    assert token(row(temperature=temperature, **filters)) == BEST
    # All that the mask allows has negative scores, which become minus infinity like the others.
    worse, worst = LOGITS.argsort()[:2].tolist()[::-1]
    assert token(
        row(temperature=temperature, mask=0, **filters), LOGITS, mask_of(worse, worst)
    ) == (worse)


def test_a_tie_goes_to_the_lowest_id() -> None:
    logits = torch.zeros(VOCAB)
    logits[[9, 4, 60]] = 1.0
    assert token(greedy(), logits) == 4
    assert token(greedy(mask=0), logits, mask_of(60, 9)) == 9


def test_no_rows_give_no_tokens() -> None:
    assert sample(LOGITS[None][:0], SamplePlan(())) == ()


def test_draws_follow_the_distribution() -> None:
    logits = torch.log(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    counted = draws(8000, logits)
    for token_id, probability in enumerate((0.1, 0.2, 0.3, 0.4)):
        assert abs(counted[token_id] / 8000 - probability) < 0.02


def test_a_low_temperature_sharpens_the_distribution() -> None:
    logits = torch.log(torch.tensor([0.25, 0.75]))
    assert abs(draws(4000, logits, temperature=0.5)[1] / 4000 - 0.9) < 0.02


def test_a_draw_is_a_function_of_seed_choice_and_position() -> None:
    flat = torch.zeros(VOCAB)
    base = [token(row(seed=5, choice=1, position=p), flat) for p in range(20)]
    assert base == [token(row(seed=5, choice=1, position=p), flat) for p in range(20)]
    assert base != [token(row(seed=6, choice=1, position=p), flat) for p in range(20)]
    assert base != [token(row(seed=5, choice=2, position=p), flat) for p in range(20)]
    assert len(set(base)) > 10


def test_every_seed_of_64_bits_is_accepted() -> None:
    flat = torch.zeros(VOCAB)
    seeds = (-(2**63), -1, 0, 2**63 - 1)
    assert len({token(row(seed=seed), flat) for seed in seeds}) > 1


def test_a_row_gets_the_same_token_in_any_company() -> None:
    rows = [
        row(seed=1),
        row(seed=2, top_p=0.7),
        row(seed=3, top_k=5, temperature=1.5),
        greedy(frequency_penalty=1.0, output_ids=(BEST,)),
        row(seed=4, min_p=0.1, mask=0),
        greedy(num_logprobs=4),
    ]
    masks = mask_of(*range(0, VOCAB, 2))
    alone = [choose(one, masks=masks)[0] for one in rows]
    assert choose(*rows, masks=masks) == alone
    assert choose(*rows[::-1], masks=masks) == alone[::-1]


def test_top_k_leaves_exactly_the_k_best() -> None:
    best = set(LOGITS.topk(3).indices.tolist())
    assert set(draws(400, LOGITS, top_k=3, temperature=2.0)) == best


def test_top_k_of_one_is_greedy_and_one_beyond_the_vocabulary_is_off() -> None:
    assert token(row(top_k=1)) == BEST
    assert token(row(top_k=VOCAB + 5, seed=9)) == token(row(seed=9))


def test_top_p_leaves_the_fewest_tokens_with_that_mass() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    assert set(draws(400, logits, top_p=0.7)) == {0, 1}
    assert set(draws(400, logits, top_p=0.85)) == {0, 1, 2}
    assert set(draws(400, logits, top_p=0.0)) == {0}


def test_a_nucleus_wider_than_the_guess_is_exact() -> None:
    flat = torch.zeros(5000)
    flat[:2500] = 0.001
    counted = draws(3000, flat, top_p=0.4)
    assert len(counted) > 1000
    assert all(token_id is not None and token_id < 2500 for token_id in counted)


def test_min_p_is_relative_to_the_best_token() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    assert set(draws(400, logits, min_p=0.25)) == {0, 1, 2}
    assert set(draws(400, logits, min_p=1.0)) == {0}


def test_a_filter_keeps_the_noise_of_the_tokens_it_keeps() -> None:
    kept = {s: token(row(seed=s, top_k=VOCAB - 1)) for s in range(50)}
    whole = {s: token(row(seed=s)) for s in range(50)}
    assert kept == whole


def test_bias_is_added_to_the_logits() -> None:
    assert token(greedy(logit_bias={7: 100.0})) == 7
    assert token(greedy(logit_bias={BEST: -100.0})) != BEST


def test_frequency_and_presence_count_generated_tokens_only() -> None:
    logits = torch.zeros(VOCAB)
    logits[[1, 2]] = torch.tensor([1.0, 0.9])
    for penalty in ("frequency_penalty", "presence_penalty"):
        assert token(greedy(**{penalty: 0.5}, prompt_ids=(1,)), logits) == 1
        assert token(greedy(**{penalty: 0.5}, output_ids=(1,)), logits) == 2


def test_frequency_grows_with_the_count_and_presence_does_not() -> None:
    logits = torch.zeros(VOCAB)
    logits[[1, 2]] = torch.tensor([1.0, 0.5])
    thrice = (1, 1, 1)
    assert token(greedy(frequency_penalty=0.2, output_ids=thrice), logits) == 2
    assert token(greedy(presence_penalty=0.2, output_ids=thrice), logits) == 1


def test_repetition_counts_prompt_and_output_and_lowers_both_signs() -> None:
    logits = torch.full((VOCAB,), -9.0)
    logits[[1, 2]] = torch.tensor([1.0, 0.9])
    assert token(greedy(repetition_penalty=1.5, prompt_ids=(1,)), logits) == 2
    assert token(greedy(repetition_penalty=1.5, output_ids=(1,)), logits) == 2
    logits[[1, 2]] = torch.tensor([-0.9, -1.0])
    assert token(greedy(repetition_penalty=1.5, prompt_ids=(1,)), logits) == 2


def test_forbidden_tokens_are_never_chosen() -> None:
    assert token(greedy(forbid_ids=(BEST,), logit_bias={BEST: 100.0})) != BEST


def test_a_mask_wins_over_any_bias() -> None:
    one = greedy(mask=0, logit_bias={3: 100.0})
    assert token(one, masks=mask_of(5, 69)) in (5, 69)


def test_rows_use_the_masks_they_point_into() -> None:
    masks = np.concatenate([mask_of(5), mask_of(69)])
    rows = [greedy(mask=1), greedy(), row(mask=0)]
    assert [s.token_id for s in choose(*rows, masks=masks)] == [69, BEST, 5]


def test_forbidden_tokens_give_way_where_the_mask_leaves_nothing_else() -> None:
    assert token(greedy(mask=0, forbid_ids=(5, 6)), masks=mask_of(5)) == 5
    assert token(greedy(mask=0, forbid_ids=(5, 6)), masks=mask_of(5, 69)) == 69


def test_nothing_left_is_none_and_harms_no_other_row() -> None:
    rows = [greedy(mask=0), greedy(), row(mask=0, num_logprobs=2), row(mask=0, top_p=0.5)]
    everything = greedy(forbid_ids=tuple(range(VOCAB)))
    sampled = choose(*rows, everything, masks=mask_of())
    assert [s.token_id for s in sampled] == [None, BEST, None, None, None]


def test_logits_that_are_not_numbers_give_no_token() -> None:
    assert token(greedy(), torch.full((VOCAB,), float("nan"))) is None
    assert token(row(), torch.full((VOCAB,), float("nan"))) is None


def test_logprobs_are_of_the_raw_distribution() -> None:
    expected = torch.log_softmax(LOGITS, dim=-1)
    one = row(num_logprobs=4, mask=0, temperature=0.3, logit_bias={5: 50.0}, top_k=1)
    sampled = choose(one, masks=mask_of(5, 6))[0]
    assert sampled.token_id == 5
    assert sampled.logprob is not None
    assert abs(sampled.logprob.logprob - float(expected[5])) < 1e-5
    best = expected.topk(4)
    assert [token_id for token_id, _ in sampled.logprob.top] == best.indices.tolist()
    assert np.allclose([value for _, value in sampled.logprob.top], best.values.tolist())


def test_logprobs_come_only_where_asked_and_as_many_as_asked() -> None:
    none, zero, two = choose(greedy(), greedy(num_logprobs=0), greedy(num_logprobs=2))
    assert none.logprob is None
    assert zero.logprob is not None
    assert zero.logprob.top == ()
    assert two.logprob is not None
    assert len(two.logprob.top) == 2


def test_sampling_leaves_the_logits_as_they_were() -> None:
    logits = LOGITS.clone()[None]
    plan = SamplePlan((row(mask=0, logit_bias={1: 5.0}, forbid_ids=(2,)),), mask_of(1, 2, 3))
    sample(logits, plan)
    assert torch.equal(logits[0], LOGITS)
