"""Scores of prompt tokens: which rows they are taken from, a few rows of logits at a time."""

import pytest
import torch
from torch import Tensor

from runtime import prompt_scores
from runtime.batch import PageId, RowKey, ScheduledBatch, ScheduledRow, ScoredTokens
from runtime.prompt_scores import score_tokens, scored_places
from tests.no_reads import NoReads

HIDDEN, VOCAB_SIZE = 8, 23


def row(num_tokens: int, scored: ScoredTokens | None = None) -> ScheduledRow:
    return ScheduledRow(RowKey(0), (1,) * num_tokens, 0, (PageId(0),), (), scored)


def random_case(*num_best: int) -> tuple[Tensor, Tensor, list[ScoredTokens]]:
    """Hidden states, the matrix that makes logits of them, and what is wanted of three each."""
    generator = torch.Generator().manual_seed(len(num_best))
    hidden = torch.randn(3 * len(num_best), HIDDEN, generator=generator)
    matrix = torch.randn(HIDDEN, VOCAB_SIZE, generator=generator)
    wanted = [ScoredTokens(0, (7 * i % 23, 5 + i, i), best) for i, best in enumerate(num_best)]
    return hidden, matrix, wanted


def test_places_count_over_all_rows_of_the_batch() -> None:
    rows = (row(4), row(5, ScoredTokens(2, (8, 9), 1)), row(1), row(3, ScoredTokens(0, (7,), 0)))
    batch = ScheduledBatch(0, rows)
    assert list(scored_places(batch)) == [6, 7, 10]
    assert [tokens.token_ids for tokens in batch.scored] == [(8, 9), (7,)]


def test_scores_are_those_of_the_whole_distribution_with_as_many_best_as_each_wants() -> None:
    hidden, matrix, wanted = random_case(2, 0, VOCAB_SIZE)
    expected = torch.log_softmax((hidden @ matrix).double(), dim=-1)
    found = score_tokens(hidden, wanted, project=lambda x: x @ matrix, vocab_size=VOCAB_SIZE)
    assert [len(scores) for scores in found] == [3, 3, 3]
    for number, (tokens, scores) in enumerate(zip(wanted, found, strict=True)):
        for token_id, score, row_of in zip(
            tokens.token_ids, scores, expected[3 * number :], strict=False
        ):
            assert score.logprob == pytest.approx(float(row_of[token_id]), abs=1e-5)
            best, ids = torch.topk(row_of, tokens.num_best)
            assert [one for one, _ in score.top] == ids.tolist()
            assert [value for _, value in score.top] == pytest.approx(best.tolist(), abs=1e-5)


@pytest.mark.parametrize("num_rows", [1, 4, 9])
def test_no_more_rows_of_logits_than_the_bound_are_there_at_a_time(
    num_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, matrix, wanted = random_case(3, 1, 2)
    sizes: list[int] = []

    def project(states: Tensor) -> Tensor:
        sizes.append(len(states))
        return states @ matrix

    whole = score_tokens(hidden, wanted, project=project, vocab_size=VOCAB_SIZE)
    assert sizes == [9]
    sizes.clear()
    monkeypatch.setattr(prompt_scores, "MAX_LOGITS", num_rows * VOCAB_SIZE + 5)
    sliced = score_tokens(hidden, wanted, project=project, vocab_size=VOCAB_SIZE)
    assert (max(sizes), sum(sizes)) == (num_rows, 9)
    for scores, others in zip(sliced, whole, strict=True):
        for score, other in zip(scores, others, strict=True):
            assert score.logprob == pytest.approx(other.logprob, abs=1e-5)
            assert [one for one, _ in score.top] == [one for one, _ in other.top]


def test_a_vocabulary_larger_than_the_bound_is_scored_row_by_row() -> None:
    assert prompt_scores.max_logit_rows(prompt_scores.MAX_LOGITS + 1) == 1


def test_all_slices_are_read_from_the_device_at_once() -> None:
    hidden, matrix, wanted = random_case(3, 1)
    with NoReads():
        score_tokens(hidden, wanted, project=lambda x: x @ matrix, vocab_size=VOCAB_SIZE)
