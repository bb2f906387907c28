"""An executor over plain ints that keeps KV pages truthfully, so that a wrong page fails loudly.

A slot remembers its token and a digest of the whole prefix up to it, as real KV depends on all
tokens before. Each row must find one coherent history in [0, start) of its pages. A "sampled"
token is a function of the full history, the choice and the seed, so any stale, missing or foreign
slot that is coherent by chance still changes the output.
"""

import functools
import hashlib
import struct
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np

from runtime.batch import (
    PageId,
    RowKey,
    SampledToken,
    SamplePlan,
    SampleRow,
    ScheduledBatch,
    ScheduledRow,
)
from runtime.messages import TokenLogprob
from runtime.page_io import PageBytes, check_shape

History = tuple[int, ...]
Chooser = Callable[[History, SampleRow], int]
ROOT = b""


@dataclass(frozen=True, slots=True)
class Slot:
    """What is left in a slot by the last write to it."""

    token_id: int
    digest: bytes


@functools.lru_cache(maxsize=1 << 17)
def extend_digest(digest: bytes, token_id: int) -> bytes:
    return hashlib.blake2b(digest + token_id.to_bytes(8, "little"), digest_size=8).digest()


def choose_by_hash(vocab_size: int) -> Chooser:
    """A token that depends on every token before it, and on choice and seed."""

    def choose(history: History, row: SampleRow) -> int:
        digest = ROOT
        for token_id in (*history, row.choice, row.sampling.seed):
            digest = extend_digest(digest, token_id)
        return int.from_bytes(digest, "little") % vocab_size

    return choose


def score_by_hash(history: History, token_id: int, *, num_best: int) -> TokenLogprob:
    """Depends on every token before the scored one."""
    digest = ROOT
    for one in (*history, token_id):
        digest = extend_digest(digest, one)
    number = int.from_bytes(digest, "little") % 1000
    return TokenLogprob(-number / 100, tuple((number % 50 + i, -float(i)) for i in range(num_best)))


def is_allowed(token_id: int, row: SampleRow, plan: SamplePlan) -> bool:
    """The mask where there is one, else the forbidden ids."""
    if row.mask is None:
        return token_id not in row.forbid_ids
    assert plan.masks is not None
    word = int(plan.masks[row.mask][token_id // 32])
    return bool(word >> (token_id % 32) & 1)


@dataclass(eq=False)
class FakeExecutor:
    """Records every batch and plan in `batches` and `plans`."""

    page_size: int
    vocab_size: int
    choose: Chooser | None = None
    batches: list[ScheduledBatch] = field(default_factory=list)
    plans: list[SamplePlan] = field(default_factory=list)
    slots: dict[tuple[PageId, int], Slot] = field(default_factory=dict)
    histories: dict[RowKey, History] = field(default_factory=dict)
    page_io: "SlotPageIo" = field(init=False)
    _wanted: list[History] = field(default_factory=list)
    _scores: list[list[TokenLogprob]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page_io = SlotPageIo(self.slots, self.page_size)

    @property
    def num_computed_tokens(self) -> int:
        return sum(batch.num_tokens for batch in self.batches)

    def forward(self, batch: ScheduledBatch) -> None:
        self.batches.append(batch)
        self._copy_pages(batch)
        self._check_writers(batch)
        self._wanted, self._scores = [], []
        for row in batch.rows:
            self._run(row)

    def sample(self, plan: SamplePlan) -> tuple[SampledToken, ...]:
        self.plans.append(plan)
        places = range(len(self._wanted)) if plan.places is None else plan.places
        wanted = [self._wanted[place] for place in places]
        assert len(plan.rows) == len(wanted), "the plan is not about the last batch"
        pairs = zip(plan.rows, wanted, strict=True)
        return tuple(self._sample(row, history, plan) for row, history in pairs)

    def score(self) -> tuple[list[TokenLogprob], ...]:
        return tuple(self._scores)

    def _copy_pages(self, batch: ScheduledBatch) -> None:
        for copy in batch.copies:
            for index in range(copy.num_slots):
                assert (copy.source, index) in self.slots, f"copy of an empty slot: {copy}"
                self.slots[copy.target, index] = self.slots[copy.source, index]

    def _check_writers(self, batch: ScheduledBatch) -> None:
        """No page that one row writes may be seen by another."""
        for row in batch.rows:
            assert len(set(row.page_ids)) == len(row.page_ids), f"a page twice in row {row.key}"
            written = set(row.page_ids[row.start // self.page_size :])
            for other in batch.rows:
                assert other is row or written.isdisjoint(other.page_ids), "a shared page written"

    def _run(self, row: ScheduledRow) -> None:
        history, digest = self._read(row)
        known = self.histories.get(row.key, ())
        num_common = min(len(known), len(history))
        assert known[:num_common] == history[:num_common], f"row {row.key} sees other tokens"
        for token_id in row.token_ids:
            digest = extend_digest(digest, token_id)
            self.slots[self._place(row, len(history))] = Slot(token_id, digest)
            history = (*history, token_id)
        self.histories[row.key] = history
        starts = (row.start + offset + 1 for offset in row.sample_offsets)
        self._wanted += [history[:end] for end in starts]
        if row.scored is not None:
            first, token_ids = row.start + row.scored.first + 1, row.scored.token_ids
            self._scores.append(
                [
                    score_by_hash(history[:end], token_id, num_best=row.scored.num_best)
                    for end, token_id in enumerate(token_ids, start=first)
                ]
            )

    def _read(self, row: ScheduledRow) -> tuple[History, bytes]:
        """The tokens in [0, start) of the row's pages."""
        history, digest = [], ROOT
        for position in range(row.start):
            slot = self.slots.get(self._place(row, position))
            assert slot is not None, f"position {position} of row {row.key} was never computed"
            digest = extend_digest(digest, slot.token_id)
            assert slot.digest == digest, f"position {position} of row {row.key} is another's"
            history.append(slot.token_id)
        return tuple(history), digest

    def _place(self, row: ScheduledRow, position: int) -> tuple[PageId, int]:
        return row.page_ids[position // self.page_size], position % self.page_size

    def _sample(self, row: SampleRow, history: History, plan: SamplePlan) -> SampledToken:
        first = (self.choose or choose_by_hash(self.vocab_size))(history, row)
        candidates = ((first + step) % self.vocab_size for step in range(self.vocab_size))
        token_id = next((one for one in candidates if is_allowed(one, row, plan)), None)
        wants_logprob = row.sampling.num_logprobs is not None and token_id is not None
        return SampledToken(token_id, TokenLogprob(-1.0) if wants_logprob else None)


# A token, a digest of 8 bytes, and whether there is something at all.
_SLOT = struct.Struct("<q8s?")


@dataclass(eq=False)
class SlotPageIo:
    """Moves what slots hold, so that a page that comes back to the wrong place fails loudly."""

    slots: dict[tuple[PageId, int], Slot]
    page_size: int
    dtype: str = "bfloat16"
    foreign_pages: AbstractSet[int] = frozenset()
    num_read: int = 0
    num_written: int = 0

    @property
    def page_bytes(self) -> int:
        return self.page_size * _SLOT.size

    def read(self, page_ids: Sequence[int]) -> PageBytes:
        self.num_read += len(page_ids)
        packed = b"".join(map(self._pack, page_ids))
        return np.frombuffer(packed, np.uint8).reshape(len(page_ids), -1)

    def write(self, page_ids: Sequence[int], pages: PageBytes) -> None:
        check_shape(page_ids, pages, page_bytes=self.page_bytes)
        self.num_written += len(page_ids)
        for page_id, page in zip(page_ids, pages, strict=True):
            for index, (token_id, digest, is_there) in enumerate(_SLOT.iter_unpack(page.tobytes())):
                assert is_there, f"slot {index} of page {page_id} is written with nothing"
                self.slots[PageId(page_id), index] = Slot(token_id, digest)

    def _pack(self, page_id: int) -> bytes:
        slots = (self.slots.get((PageId(page_id), index)) for index in range(self.page_size))
        return b"".join(
            _SLOT.pack(slot.token_id, slot.digest, True) if slot else _SLOT.pack(0, b"", False)
            for slot in slots
        )
