"""Log-probabilities of a prompt's tokens, from the hidden states before them, a few rows of logits
at a time. Called by the executors.

Letters: N scored tokens of a step, C of a slice of them, V vocabulary, K best.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from runtime.batch import ScheduledBatch, ScoredTokens
from runtime.hardware import to_device, to_host
from runtime.messages import TokenLogprob

# So many logits are there at a time (16 MB, and as much for what is made of them), whatever the
# length of the prompt.
MAX_LOGITS = 1 << 22


@dataclass(frozen=True, slots=True)
class TokenScores:
    """own: [N] float32, the tokens' log-probabilities; best: [N, K] float32 and best_ids: [N, K]
    int32, those of the best tokens, in falling order."""

    own: npt.NDArray[np.float32]
    best: npt.NDArray[np.float32]
    best_ids: npt.NDArray[np.int32]

    def split(self, wanted: Sequence[ScoredTokens]) -> tuple[list[TokenLogprob], ...]:
        """A list for each of `wanted`, which K is enough for."""
        tops = (
            tuple(zip(ids, values, strict=True))
            for ids, values in zip(self.best_ids.tolist(), self.best.tolist(), strict=True)
        )
        rows = zip(self.own.tolist(), tops, strict=True)
        return tuple(
            [
                TokenLogprob(logprob, top[: tokens.num_best])
                for logprob, top in islice(rows, len(tokens.token_ids))
            ]
            for tokens in wanted
        )


def max_logit_rows(vocab_size: int) -> int:
    """How many rows of logits are made of hidden states at a time."""
    return max(1, MAX_LOGITS // vocab_size)


def scored_places(batch: ScheduledBatch) -> Iterator[int]:
    """Where, among all tokens of the batch, the logits are that the scores are taken from."""
    first_token = 0
    for row in batch.rows:
        if row.scored is not None:
            start = first_token + row.scored.first
            yield from range(start, start + len(row.scored.token_ids))
        first_token += len(row.token_ids)


def score_tokens(
    hidden: Tensor,
    wanted: Sequence[ScoredTokens],
    *,
    project: Callable[[Tensor], Tensor],
    vocab_size: int,
) -> tuple[list[TokenLogprob], ...]:
    """hidden: [N, hidden], the states before the tokens of `wanted`; project: [C, hidden] -> logits
    [C, V] float32. Waits for the device once."""
    token_ids = np.array([one for tokens in wanted for one in tokens.token_ids], dtype=np.int64)
    num_best = max(tokens.num_best for tokens in wanted)
    targets = to_device(token_ids, hidden.device)
    num_rows = max_logit_rows(vocab_size)
    slices = [slice(start, start + num_rows) for start in range(0, len(token_ids), num_rows)]
    found = [_score(project(hidden[part]), targets[part], num_best) for part in slices]
    words = to_host(torch.cat(found))  # [N, 1 + 2 K]
    values = words.view(np.float32)
    scores = TokenScores(
        own=values[:, 0], best=values[:, 1 : 1 + num_best], best_ids=words[:, 1 + num_best :]
    )
    return scores.split(wanted)


def _score(logits: Tensor, targets: Tensor, num_best: int) -> Tensor:
    """[C, 1 + 2 K] int32: the target's log-probability and the best ones, their bits, and ids."""
    logprobs = torch.log_softmax(logits, dim=-1)
    own = logprobs.gather(1, targets[:, None])
    best, best_ids = torch.topk(logprobs, num_best, dim=-1)
    return torch.cat((own.view(torch.int32), best.view(torch.int32), best_ids.int()), dim=1)
