"""The values a step passes from stage to stage: plain ints, so that a batch can be broadcast.

    Scheduler -> ScheduledBatch -> Executor.forward -> SamplePlan -> Executor.sample -> SampledToken

No tensor appears here. The masks are numpy rows that the matchers fill (grammar.matcher).
"""

from dataclasses import dataclass
from typing import NewType, Protocol

import numpy as np
import numpy.typing as npt

from runtime.messages import Sampling, TokenLogprob
from runtime.page_io import PageIo

PageId = NewType("PageId", int)
RowKey = NewType("RowKey", int)


@dataclass(frozen=True, slots=True)
class PageCopy:
    """Copy on write: the first `num_slots` slots of `source` go to `target` before the forward."""

    source: PageId
    target: PageId
    num_slots: int


@dataclass(frozen=True, slots=True)
class ScoredTokens:
    """Whose log-probabilities are wanted: the i-th token's by the logits of the row's token
    `first` + i, each with the `num_best` best."""

    first: int
    token_ids: tuple[int, ...]
    num_best: int


@dataclass(frozen=True, slots=True)
class ScheduledRow:
    """The new tokens of one sequence in this step.

    | token range                            | what                                     |
    | -------------------------------------- | ---------------------------------------- |
    | [0, start)                             | KV already in `page_ids`                 |
    | [start, start + len(token_ids))        | computed now, KV written to `page_ids`   |

    `page_ids` covers at least start + len(token_ids) slots. `sample_offsets` are the indices into
    `token_ids` whose logits are wanted (empty for a prefill chunk that is not the last). `scored`:
    tokens of the prompt behind some of this row's, None where the prompt is not scored.
    """

    key: RowKey
    token_ids: tuple[int, ...]
    start: int
    page_ids: tuple[PageId, ...]
    sample_offsets: tuple[int, ...]
    scored: ScoredTokens | None = None


@dataclass(frozen=True, slots=True)
class ScheduledBatch:
    """One step: the copies first, then all rows in one forward."""

    step: int
    rows: tuple[ScheduledRow, ...]
    copies: tuple[PageCopy, ...] = ()

    @property
    def num_tokens(self) -> int:
        return sum(len(row.token_ids) for row in self.rows)

    @property
    def scored(self) -> list[ScoredTokens]:
        """Those of the rows that have some, in their order."""
        return [row.scored for row in self.rows if row.scored is not None]


@dataclass(frozen=True, slots=True)
class SampleRow:
    """How one wanted logits row becomes a token; in the order of the batch's sample offsets.

    `position` counts the choice's generated tokens and, with seed and choice, fixes the noise.
    `prompt_ids` / `output_ids` are given only where a penalty needs them. `forbid_ids` are masked
    out (end-of-sequence under ignore_eos or min_tokens). `mask` is an index into the mask
    array, None for an unconstrained row; where it is set the mask wins over `forbid_ids`
    and the bias.
    """

    sampling: Sampling
    choice: int
    position: int
    prompt_ids: tuple[int, ...] = ()
    output_ids: tuple[int, ...] = ()
    forbid_ids: tuple[int, ...] = ()
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """One SampleRow per wanted logits row, and the masks they point into.

    masks: [num_masks, ceil(V / 32)] int32, None where no row is constrained. `places` says which
    of the batch's wanted logits rows the plan is for, None = all.
    """

    rows: tuple[SampleRow, ...]
    masks: npt.NDArray[np.int32] | None = None
    places: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class SampledToken:
    """One row's outcome. `token_id` None = every token was excluded."""

    token_id: int | None
    logprob: TokenLogprob | None = None


class Executor(Protocol):
    """Runs scheduled batches on one device. `forward` may return before the device is done, so
    that masks are filled meanwhile; `sample` waits. One batch at a time, one thread."""

    @property
    def page_io(self) -> PageIo | None:
        """How its pages leave the device and come back; None where they cannot, or not yet."""

    def forward(self, batch: ScheduledBatch) -> None: ...

    def sample(self, plan: SamplePlan) -> tuple[SampledToken, ...]:
        """The tokens for the batch given to the last `forward`, in the plan's order. May be called
        again for some of its rows."""

    def score(self) -> tuple[list[TokenLogprob], ...]:
        """The raw log-probabilities that the batch given to the last `forward` wants `scored`, a
        list a row that has some. Waits, and takes memory for a few rows of logits at a time."""
