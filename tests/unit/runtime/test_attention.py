"""Paged attention against the textbook formula, however rows, pages and chunks are laid out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from runtime.attention import MIN_SHARED_PAGES, PagedAttention
from runtime.batch import PageCopy, PageId, RowKey, ScheduledBatch, ScheduledRow
from runtime.decoder_spec import DecoderSpec, LayerSpec, RotarySpec

HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE, NUM_PAGES = 6, 2, 8, 4, 64
SPEC = DecoderSpec(
    hidden_size=48,
    num_heads=HEADS,
    num_kv_heads=KV_HEADS,
    head_dim=HEAD_DIM,
    ffn_size=8,
    vocab_size=8,
    max_position=256,
    norm_eps=1e-5,
    attention_scale=HEAD_DIM**-0.5,
    tied_embeddings=True,
    layers=(LayerSpec(RotarySpec((1.0,) * (HEAD_DIM // 2))),),
)
CPU = torch.device("cpu")


@dataclass
class History:
    """q, k and v of all tokens of one sequence: [len, heads, d]; its pages."""

    q: Tensor
    k: Tensor
    v: Tensor
    pages: tuple[int, ...]

    @classmethod
    def random(cls, length: int, pages: Sequence[int], seed: int) -> "History":
        generator = torch.Generator().manual_seed(seed)
        q, k, v = (
            torch.randn(length, heads, HEAD_DIM, generator=generator)
            for heads in (HEADS, KV_HEADS, KV_HEADS)
        )
        return cls(q, k, v, tuple(pages))

    def expected(
        self, start: int, end: int, *, window: int | None = None, softcap: float | None = None
    ) -> Tensor:
        """Plain causal attention for the tokens [start, end): [end - start, H * d]."""
        k = self.k.repeat_interleave(HEADS // KV_HEADS, dim=1)
        v = self.v.repeat_interleave(HEADS // KV_HEADS, dim=1)
        scores = torch.einsum("qhd,khd->hqk", self.q[start:end], k[:end]) / HEAD_DIM**0.5
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        age = torch.arange(start, end)[:, None] - torch.arange(end)[None]
        unseen = (age < 0) | (age >= (window or end))
        weights = scores.masked_fill(unseen, float("-inf")).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, v[:end]).flatten(1)


def make_attention(
    *, share_prefixes: bool = True, window: int | None = None, softcap: float | None = None
) -> PagedAttention:
    layers = (replace(SPEC.layers[0], window=window),)
    return PagedAttention(
        replace(SPEC, layers=layers, attention_softcap=softcap),
        num_pages=NUM_PAGES,
        page_size=PAGE_SIZE,
        dtype=torch.float32,
        device=CPU,
        share_prefixes=share_prefixes,
    )


def run(
    attention: PagedAttention, rows: Sequence[tuple[History, int, int]], *, padding: int = 0
) -> list[Tensor]:
    """One step over (history, start, end) rows; the output of each."""
    batch = ScheduledBatch(
        step=0,
        rows=tuple(
            ScheduledRow(
                key=RowKey(index),
                token_ids=(0,) * (end - start),
                start=start,
                page_ids=tuple(PageId(page) for page in history.pages),
                sample_offsets=(),
            )
            for index, (history, start, end) in enumerate(rows)
        ),
    )

    def stacked(name: str) -> Tensor:
        parts = [getattr(history, name)[start:end] for history, start, end in rows]
        filler = torch.full((padding, *parts[0].shape[1:]), float("nan"))
        return torch.cat([*parts, filler])

    output = attention.run(attention.plan(batch), 0, q=stacked("q"), k=stacked("k"), v=stacked("v"))
    assert output.shape[0] == batch.num_tokens + padding
    return list(torch.split(output[: batch.num_tokens], [end - start for _, start, end in rows]))


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunk_len", [1, 3, 4, 7, 30])
def test_any_chunking_gives_the_textbook_result(chunk_len: int) -> None:
    history = History.random(30, pages=(9, 3, 50, 1, 22, 7, 13, 63), seed=0)
    attention = make_attention()
    for start in range(0, 30, chunk_len):
        end = min(start + chunk_len, 30)
        assert_close(run(attention, [(history, start, end)])[0], history.expected(start, end))


def test_a_ragged_step_of_prefills_and_decodes_keeps_rows_apart() -> None:
    histories = [History.random(20, pages=range(i * 5, i * 5 + 5), seed=i) for i in range(4)]
    attention = make_attention()
    run(attention, [(histories[0], 0, 19), (histories[1], 0, 5), (histories[2], 0, 3)])
    rows = [
        (histories[1], 5, 6),
        (histories[3], 0, 20),
        (histories[0], 19, 20),
        (histories[2], 3, 11),
    ]
    for (history, start, end), output in zip(rows, run(attention, rows), strict=True):
        assert_close(output, history.expected(start, end))


def test_padding_rows_are_neither_written_nor_read() -> None:
    history = History.random(6, pages=(0, 1), seed=1)
    attention = make_attention()
    run(attention, [(history, 0, 5)], padding=3)
    output = run(attention, [(history, 5, 6)], padding=7)[0]
    assert_close(output, history.expected(5, 6))


def test_what_a_page_held_before_does_not_leak_into_a_new_row() -> None:
    attention = make_attention()
    run(attention, [(History.random(8, pages=(4, 5), seed=2), 0, 8)])
    fresh = History.random(3, pages=(5,), seed=3)
    run(attention, [(fresh, 0, 2)])
    assert_close(run(attention, [(fresh, 2, 3)])[0], fresh.expected(2, 3))


def shared_histories(num_shared_tokens: int, *, lengths: Sequence[int]) -> list[History]:
    """Histories that begin with the same tokens, on the same pages."""
    base = History.random(num_shared_tokens, pages=range(num_shared_tokens // PAGE_SIZE), seed=7)
    histories = []
    for index, length in enumerate(lengths):
        first_page = 16 + 8 * index
        own = History.random(length, pages=range(first_page, first_page + 8), seed=8 + index)
        histories.append(
            History(
                q=torch.cat((base.q, own.q)),
                k=torch.cat((base.k, own.k)),
                v=torch.cat((base.v, own.v)),
                pages=base.pages + own.pages,
            )
        )
    return histories


@pytest.mark.parametrize("share_prefixes", [True, False])
@pytest.mark.parametrize("num_shared_pages", [1, MIN_SHARED_PAGES, 10])
def test_rows_with_a_shared_prefix_get_the_textbook_result(
    num_shared_pages: int, *, share_prefixes: bool
) -> None:
    lengths = (1, 2, 9, 17)
    num_shared = num_shared_pages * PAGE_SIZE
    histories = shared_histories(num_shared, lengths=lengths)
    loner = History.random(12, pages=(60, 61, 62), seed=99)
    attention = make_attention(share_prefixes=share_prefixes)
    ends = [num_shared + length for length in lengths]
    for history, end in zip(histories, ends, strict=True):
        run(attention, [(history, 0, end - 1)])
    run(attention, [(loner, 0, 11)])
    rows = [(h, end - 1, end) for h, end in zip(histories, ends, strict=True)] + [(loner, 11, 12)]
    for (history, start, end), output in zip(rows, run(attention, rows), strict=True):
        assert_close(output, history.expected(start, end))


def test_a_shared_prefix_is_planned_once_for_its_rows() -> None:
    histories = shared_histories(8 * PAGE_SIZE, lengths=(1, 2, 3))
    rows = tuple(
        ScheduledRow(
            key=RowKey(i),
            token_ids=(0,),
            start=8 * PAGE_SIZE + i,
            page_ids=tuple(PageId(page) for page in history.pages),
            sample_offsets=(),
        )
        for i, history in enumerate(histories)
    )
    plan = make_attention().plan(ScheduledBatch(step=0, rows=rows))
    (group,) = plan.by_window[None].groups
    assert group.shared_pages is not None
    assert group.shared_pages.tolist() == list(range(8))
    assert group.token_index.tolist() == [0, 1, 2]


def test_copied_slots_serve_as_the_start_of_another_sequence() -> None:
    history = History.random(7, pages=(0, 1), seed=4)
    attention = make_attention()
    run(attention, [(history, 0, 6)])
    other = History(history.q, history.k, history.v, pages=(0, 9))
    attention.copy_slots([PageCopy(source=PageId(1), target=PageId(9), num_slots=2)])
    assert_close(run(attention, [(other, 6, 7)])[0], history.expected(6, 7))


def test_a_copy_leaves_the_slots_after_it_alone() -> None:
    history = History.random(8, pages=(0, 1), seed=5)
    attention = make_attention()
    run(attention, [(history, 0, 8)])
    source = History.random(4, pages=(2,), seed=6)
    run(attention, [(source, 0, 4)])
    attention.copy_slots([PageCopy(source=PageId(2), target=PageId(1), num_slots=1)])
    mixed_k, mixed_v = history.k.clone(), history.v.clone()
    mixed_k[4], mixed_v[4] = source.k[0], source.v[0]
    mixed = History(history.q, mixed_k, mixed_v, pages=(0, 1))
    assert_close(run(attention, [(mixed, 7, 8)])[0], mixed.expected(7, 8))


@pytest.mark.parametrize("window", [1, 3, 4, 17, 70, 150, 200])
@pytest.mark.parametrize("chunk_len", [1, 7, 90, 180])
def test_a_window_hides_older_tokens_in_any_chunking(window: int, chunk_len: int) -> None:
    history = History.random(180, pages=range(60, 15, -1), seed=11)
    attention = make_attention(window=window)
    for start in range(0, 180, chunk_len):
        end = min(start + chunk_len, 180)
        output = run(attention, [(history, start, end)])[0]
        assert_close(output, history.expected(start, end, window=window))


@pytest.mark.parametrize("window", [5, 18, 43, 60])
def test_rows_with_a_shared_prefix_see_their_windows(window: int) -> None:
    num_shared, lengths = 10 * PAGE_SIZE, (1, 2, 9, 17)
    histories = shared_histories(num_shared, lengths=lengths)
    attention = make_attention(window=window)
    ends = [num_shared + length for length in lengths]
    for history, end in zip(histories, ends, strict=True):
        run(attention, [(history, 0, end - 1)])
    rows = [(history, end - 1, end) for history, end in zip(histories, ends, strict=True)]
    for (history, start, end), output in zip(rows, run(attention, rows), strict=True):
        assert_close(output, history.expected(start, end, window=window))


def test_layers_of_different_windows_share_a_plan() -> None:
    window = 6
    layers = (SPEC.layers[0], replace(SPEC.layers[0], window=window))
    attention = PagedAttention(
        replace(SPEC, layers=layers),
        num_pages=NUM_PAGES,
        page_size=PAGE_SIZE,
        dtype=torch.float32,
        device=CPU,
    )
    history = History.random(20, pages=range(5), seed=12)
    row = ScheduledRow(RowKey(0), (0,) * 20, 0, tuple(PageId(page) for page in range(5)), ())
    plan = attention.plan(ScheduledBatch(step=0, rows=(row,)))
    full, windowed = (
        attention.run(plan, layer, q=history.q, k=history.k, v=history.v) for layer in (0, 1)
    )
    assert_close(full, history.expected(0, 20))
    assert_close(windowed, history.expected(0, 20, window=window))


@pytest.mark.parametrize("chunk_len", [1, 12])
def test_a_softcap_bends_the_scores_before_the_softmax(chunk_len: int) -> None:
    history = History.random(24, pages=range(6), seed=13)
    attention = make_attention(softcap=0.7)
    for start in range(0, 24, chunk_len):
        end = start + chunk_len
        output = run(attention, [(history, start, end)])[0]
        assert_close(output, history.expected(start, end, softcap=0.7))


def test_a_softcap_holds_for_shared_prefixes_too() -> None:
    histories = shared_histories(8 * PAGE_SIZE, lengths=(2, 5))
    attention = make_attention(softcap=0.7)
    ends = [8 * PAGE_SIZE + 2, 8 * PAGE_SIZE + 5]
    for history, end in zip(histories, ends, strict=True):
        run(attention, [(history, 0, end - 1)])
    rows = [(history, end - 1, end) for history, end in zip(histories, ends, strict=True)]
    for (history, start, end), output in zip(rows, run(attention, rows), strict=True):
        assert_close(output, history.expected(start, end, softcap=0.7))


def test_the_scale_is_the_specs() -> None:
    history = History.random(9, pages=range(3), seed=14)
    spec = replace(SPEC, attention_scale=SPEC.attention_scale * 3)
    attention = PagedAttention(
        spec, num_pages=NUM_PAGES, page_size=PAGE_SIZE, dtype=torch.float32, device=CPU
    )
    output = run(attention, [(history, 0, 9)])[0]
    assert_close(output, History(history.q * 3, history.k, history.v, ()).expected(0, 9))
