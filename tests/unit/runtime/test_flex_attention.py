"""Attention for GPUs, uncompiled on the CPU, against the plain backend: whatever a step holds."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from runtime.attention import PagedAttention
from runtime.attention_backend import AttentionBackend, PlanT
from runtime.batch import PageCopy, PageId, RowKey, ScheduledBatch, ScheduledRow
from runtime.decoder_spec import DecoderSpec, LayerSpec, RotarySpec
from runtime.flex_attention import PREFILL_BLOCK_LEN, Attend, FlexPagedAttention, attend_pages
from tests.page_lists import attend_listed_pages

HEAD_DIM, PAGE_SIZE, NUM_PAGES, MAX_LEN = 8, 4, 96, 256
LAYER = LayerSpec(RotarySpec((1.0,) * (HEAD_DIM // 2)))
SPEC = DecoderSpec(
    hidden_size=48,
    num_heads=6,
    num_kv_heads=2,
    head_dim=HEAD_DIM,
    ffn_size=8,
    vocab_size=8,
    max_position=MAX_LEN,
    norm_eps=1e-5,
    attention_scale=0.4,
    tied_embeddings=True,
    layers=(LAYER, replace(LAYER, window=7)),
)
CPU = torch.device("cpu")


@dataclass
class Driven:
    """Pages and how many tokens have been computed."""

    pages: list[int]
    num_computed: int = 0

    def row(self, num_tokens: int) -> ScheduledRow:
        row = ScheduledRow(
            RowKey(self.pages[-1]),
            (0,) * num_tokens,
            self.num_computed,
            tuple(PageId(page) for page in self.pages),
            (),
        )
        self.num_computed += num_tokens
        return row


def backends(
    spec: DecoderSpec, attend: Attend = attend_listed_pages
) -> tuple[PagedAttention, FlexPagedAttention]:
    plain = PagedAttention(
        spec, num_pages=NUM_PAGES, page_size=PAGE_SIZE, dtype=torch.float32, device=CPU
    )
    flex = FlexPagedAttention(
        spec,
        num_pages=NUM_PAGES,
        page_size=PAGE_SIZE,
        max_model_len=MAX_LEN,
        dtype=torch.float32,
        device=CPU,
        attend=attend,
    )
    return plain, flex


def run(
    backend: AttentionBackend[PlanT], batch: ScheduledBatch, qkv: Sequence[tuple[Tensor, ...]]
) -> list[Tensor]:
    plan = backend.plan(batch)
    return [backend.run(plan, layer, q=q, k=k, v=v).clone() for layer, (q, k, v) in enumerate(qkv)]


def assert_same(
    spec: DecoderSpec,
    pair: tuple[PagedAttention, FlexPagedAttention],
    rows: Sequence[ScheduledRow],
    *,
    seed: int = 0,
    padding: int = 0,
) -> None:
    """One step on both; rows of the padding hold what may not be read."""
    batch = ScheduledBatch(step=0, rows=tuple(rows))
    generator = torch.Generator().manual_seed(seed)
    filler = torch.full((padding, 1, HEAD_DIM), float("nan"))
    qkv = [
        tuple(
            torch.cat(
                (
                    torch.randn(batch.num_tokens, heads, HEAD_DIM, generator=generator),
                    filler.expand(-1, heads, -1),
                )
            )
            for heads in (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)
        )
        for _ in spec.layers
    ]
    plain, flex = pair
    for expected, found in zip(run(plain, batch, qkv), run(flex, batch, qkv), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention_softcap": 0.9},
        {"num_heads": 2},
        {"num_heads": 8},
        {"num_heads": 6, "num_kv_heads": 6},
        {"layers": (replace(LAYER, window=1), replace(LAYER, window=70))},
    ],
    ids=["groups of three", "softcap", "no groups", "groups of four", "all heads own", "windows"],
)
def test_ragged_steps_give_what_the_plain_backend_gives(
    changes: dict[str, object], seed: int
) -> None:
    spec = replace(SPEC, **changes)  # type: ignore[arg-type]
    chance = random.Random(seed)
    free = list(range(NUM_PAGES))
    chance.shuffle(free)
    sequences = [Driven([free.pop() for _ in range(24)]) for _ in range(4)]
    pair = backends(spec)
    for step in range(8):
        chosen = chance.sample(sequences, k=chance.randint(1, 4))
        lengths = [min(chance.choice((1, 1, 3, 40)), 96 - s.num_computed) for s in chosen]
        rows = [s.row(n) for s, n in zip(chosen, lengths, strict=True) if n]
        if rows:
            assert_same(spec, pair, rows, seed=100 * seed + step, padding=chance.randint(0, 3))


def test_prompts_longer_than_a_block_are_cut_without_a_seam() -> None:
    pair = backends(SPEC)
    first, second = Driven(list(range(40))), Driven(list(range(40, 90)))
    assert_same(SPEC, pair, [first.row(PREFILL_BLOCK_LEN + 1), second.row(2 * PREFILL_BLOCK_LEN)])
    assert_same(SPEC, pair, [second.row(PREFILL_BLOCK_LEN - 1), first.row(1)])


def test_rows_over_the_same_pages_read_them_all() -> None:
    pair = backends(SPEC)
    base = Driven(list(range(10)))
    assert_same(SPEC, pair, [base.row(40)])
    rows = [Driven([*range(10), 20 + i], num_computed=40) for i in range(5)]
    for step in range(3):
        assert_same(SPEC, pair, [row.row(1) for row in rows], seed=step)


def test_a_copied_page_serves_another_row() -> None:
    pair = backends(SPEC)
    assert_same(SPEC, pair, [Driven([0, 1]).row(7)])
    for backend in pair:
        backend.copy_slots([PageCopy(PageId(1), PageId(9), num_slots=2)])
    assert_same(SPEC, pair, [Driven([0, 9], num_computed=6).row(1)])


def test_pages_hold_the_same_in_both_backends() -> None:
    pair = backends(SPEC)
    assert_same(SPEC, pair, [Driven([5, 3]).row(7), Driven([8]).row(1)])
    pages = torch.tensor([3, 5, 8])
    for layer in range(2):
        for plain, flex in zip(
            *(backend.read_pages(layer, pages) for backend in pair), strict=True
        ):
            assert torch.equal(plain, flex)
            assert plain.any()


def test_only_the_scratch_page_is_written_for_padding() -> None:
    _, flex = pair = backends(SPEC)
    rows = [Driven([2 * i, 2 * i + 1], num_computed=5).row(1) for i in range(3)]
    assert_same(SPEC, pair, rows)  # three rows fill up to four blocks
    every = torch.arange(NUM_PAGES + 1)
    keys, _ = flex.read_pages(0, every)
    written = keys.flatten(1).any(1).nonzero().flatten().tolist()
    assert written == [1, 3, 5, flex.scratch_page]


def test_a_decode_plan_from_the_device_equals_the_one_from_the_batch() -> None:
    _, flex = backends(SPEC)
    rows = [Driven([4 * i, 4 * i + 2], num_computed=4 + i).row(1) for i in range(4)]
    from_batch = flex.plan(ScheduledBatch(step=0, rows=tuple(rows)))
    table = torch.full((4, flex.table_width), flex.scratch_page, dtype=torch.int32)
    table[:, :2] = torch.tensor([row.page_ids for row in rows])
    positions = torch.tensor([row.start for row in rows], dtype=torch.int32)
    (expected,), (found,) = from_batch.groups, flex.plan_decode(positions, table).groups
    assert torch.equal(found.slots, expected.slots)
    assert torch.equal(found.logical_pages, expected.logical_pages)
    for window, reads in expected.by_window.items():
        assert torch.equal(found.by_window[window].num_pages, reads.num_pages)
        assert torch.equal(found.by_window[window].oldest, reads.oldest)


def test_a_windowed_layer_lists_only_the_pages_of_its_window() -> None:
    _, flex = backends(SPEC)
    plan = flex.plan(ScheduledBatch(0, (Driven(list(range(20)), num_computed=77).row(1),)))
    (group,) = plan.groups
    assert group.by_window[None].num_pages.tolist() == [20]
    windowed = group.by_window[7]
    num_pages = int(windowed.num_pages)
    assert windowed.pages[0, :num_pages].tolist() == [17, 18, 19]


@pytest.mark.timeout(120)  # each shape is traced
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize("softcap", [None, 0.9])
def test_flex_attention_itself_sees_what_the_lists_say(softcap: float | None) -> None:
    spec = replace(SPEC, attention_softcap=softcap)
    pair = backends(spec, attend=attend_pages)
    first, second = Driven([7, 3, 40, 12, 60]), Driven([1, 90, 2, 33])
    assert_same(spec, pair, [first.row(18), second.row(9)])
    assert_same(spec, pair, [second.row(1), first.row(1)])
