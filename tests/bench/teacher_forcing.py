"""How likely an executor finds given tokens. Knows token ids, not texts; needs no scheduler.

Each row's mask leaves the next given token as the only choice, and the log-probability that is
reported with a sampled token is that of the raw distribution.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grammar.matcher import mask_words
from runtime.batch import (
    Executor,
    PageId,
    RowKey,
    SamplePlan,
    SampleRow,
    ScheduledBatch,
    ScheduledRow,
)
from runtime.messages import Sampling

Window = tuple[int, ...]
_FORCED = Sampling(max_tokens=1, temperature=0.0, num_logprobs=0)


@dataclass(frozen=True, slots=True)
class StepShape:
    """`chunk_len` tokens of each of `num_windows` windows in one step: the number of rows may
    decide which kernel runs."""

    name: str
    chunk_len: int
    num_windows: int


def split_windows(token_ids: Sequence[int], window_len: int) -> list[Window]:
    """Windows of equal length; what is left at the end is not used."""
    num_windows = len(token_ids) // window_len
    return [
        tuple(token_ids[index * window_len : (index + 1) * window_len])
        for index in range(num_windows)
    ]


def forced_logprobs(
    executor: Executor,
    windows: Sequence[Window],
    *,
    shape: StepShape,
    vocab_size: int,
    page_size: int,
) -> list[float]:
    """Natural logs of every token after the first of its window, in no promised order. Windows
    know nothing of each other; they overwrite the KV of the first pages of the pool."""
    logprobs: list[float] = []
    for first in range(0, len(windows), shape.num_windows):
        together = windows[first : first + shape.num_windows]
        for rows, targets in _steps(together, chunk_len=shape.chunk_len, page_size=page_size):
            executor.forward(ScheduledBatch(step=0, rows=rows))
            plan = SamplePlan(
                tuple(SampleRow(_FORCED, 0, 0, mask=index) for index in range(len(targets))),
                masks=_only(targets, vocab_size),
            )
            for target, sampled in zip(targets, executor.sample(plan), strict=True):
                assert sampled.token_id == target, "a mask was not applied"
                assert sampled.logprob is not None, "a log-probability was not given"
                logprobs.append(sampled.logprob.logprob)
    return logprobs


def _steps(
    windows: Sequence[Window], *, chunk_len: int, page_size: int
) -> Iterator[tuple[tuple[ScheduledRow, ...], list[int]]]:
    """The rows of each step and the tokens that are to follow, in the order of the rows."""
    window_len = len(windows[0])
    num_pages = -(-window_len // page_size)
    for start in range(0, window_len - 1, chunk_len):
        end = min(start + chunk_len, window_len - 1)
        rows = tuple(
            ScheduledRow(
                key=RowKey(index),
                token_ids=window[start:end],
                start=start,
                page_ids=tuple(map(PageId, range(index * num_pages, (index + 1) * num_pages))),
                sample_offsets=tuple(range(end - start)),
            )
            for index, window in enumerate(windows)
        )
        yield rows, [token for window in windows for token in window[start + 1 : end + 1]]


def _only(token_ids: Sequence[int], vocab_size: int) -> npt.NDArray[np.int32]:
    """One mask a token, [S, words], that allows that token alone."""
    masks = np.zeros((len(token_ids), mask_words(vocab_size)), dtype=np.uint32)
    for row, token_id in enumerate(token_ids):
        masks[row, token_id // 32] = 1 << (token_id % 32)
    return masks.view(np.int32)
