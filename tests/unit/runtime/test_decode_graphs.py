"""Recorded decode steps: which batches, how they are padded, how many there are."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from runtime.batch import PageId, RowKey, ScheduledBatch, ScheduledRow
from runtime.decode_graphs import DecodeGraphs, DecodeInputs
from runtime.row_buckets import ROW_BUCKETS

WIDTH, SCRATCH = 4, 99


class FakeGraphs:
    """Records as CUDA would: what is replayed sees the tensors of the first run, and its output is
    always the same tensor."""

    def __init__(self) -> None:
        self.recorded: list[int] = []
        self.seen: list[list[list[int]]] = []
        self.is_out_of_memory = False

    def compute(self, inputs: DecodeInputs) -> Tensor:
        """Logits of three: token, position, sum of the page table."""
        table = inputs.page_table
        self.seen.append(table.tolist())
        return torch.stack((inputs.token_ids, inputs.positions, table.sum(1)), dim=1).float()

    def capture(self, function: Callable[[], Tensor]) -> Callable[[], Tensor]:
        if self.is_out_of_memory:
            raise RuntimeError("CUDA out of memory\nmore")
        output = function().clone().zero_()
        self.recorded.append(output.shape[0])
        return lambda: output.copy_(function())

    def make(self, *, max_graphs: int = 8) -> DecodeGraphs:
        return DecodeGraphs(
            self.compute,
            self.capture,
            table_width=WIDTH,
            scratch_page=SCRATCH,
            device=torch.device("cpu"),
            max_graphs=max_graphs,
        )


def row(token_id: int, start: int, *pages: int, wanted: tuple[int, ...] = (0,)) -> ScheduledRow:
    page_ids = tuple(PageId(page) for page in pages)
    return ScheduledRow(RowKey(token_id), (token_id,), start, page_ids, wanted)


def batch(*rows: ScheduledRow) -> ScheduledBatch:
    return ScheduledBatch(step=0, rows=rows)


def rows(count: int) -> list[ScheduledRow]:
    return [row(index, 10 + index, index) for index in range(count)]


def values(logits: Tensor | None) -> list[list[int]]:
    assert logits is not None
    return [[int(value) for value in line] for line in logits]


def test_a_step_gives_the_logits_of_its_rows() -> None:
    graphs = FakeGraphs().make()
    step = batch(row(5, 17, 1, 2), row(6, 33, 3, 4, 5), row(7, 2, 8))
    expected = [[5, 17, 3 + 2 * SCRATCH], [6, 33, 12 + SCRATCH], [7, 2, 8 + 3 * SCRATCH]]
    assert values(graphs.run(step)) == expected


def test_a_replay_reads_the_new_step() -> None:
    fake = FakeGraphs()
    graphs = fake.make()
    graphs.run(batch(row(1, 2, 3), row(4, 5, 6, 7)))
    second = graphs.run(batch(row(8, 9, 10), row(11, 12, 13)))
    assert values(second) == [[8, 9, 10 + 3 * SCRATCH], [11, 12, 13 + 3 * SCRATCH]]
    assert fake.recorded == [2]


def test_padding_rows_have_no_page_but_the_scratch_page() -> None:
    fake = FakeGraphs()
    graphs = fake.make()
    graphs.run(batch(*rows(4)))
    graphs.run(batch(*rows(3)))
    assert fake.recorded == [4]
    assert fake.seen[-1][3] == [SCRATCH] * WIDTH
    assert [line[0] for line in fake.seen[-1][:3]] == [0, 1, 2]


def test_pages_beyond_the_longest_sequence_are_left_out() -> None:
    fake = FakeGraphs()
    fake.make().run(batch(row(1, 2, 3, 4, 5, 6, 7)))
    assert fake.seen[-1] == [[3, 4, 5, 6]]


def test_a_size_is_recorded_once_and_when_it_first_comes() -> None:
    fake = FakeGraphs()
    graphs = fake.make()
    for count in (3, 1, 4, 2, 5, 3, 1):
        assert graphs.run(batch(*rows(count))) is not None
    assert fake.recorded == [4, 1, 2, 8]


def test_with_no_recording_left_a_larger_one_is_used_or_none() -> None:
    fake = FakeGraphs()
    graphs = fake.make(max_graphs=2)
    for count in (8, 32):
        graphs.run(batch(*rows(count)))
    assert values(graphs.run(batch(*rows(3)))) == [
        [index, 10 + index, index + 3 * SCRATCH] for index in range(3)
    ]
    assert graphs.run(batch(*rows(9))) is not None
    assert graphs.run(batch(*rows(33))) is None
    assert fake.recorded == [8, 32]


def test_a_recording_that_fails_is_the_last_that_is_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = FakeGraphs()
    graphs = fake.make()
    graphs.run(batch(*rows(2)))
    fake.is_out_of_memory = True
    with caplog.at_level("WARNING", logger="runtime.decode_graphs"):
        assert graphs.run(batch(*rows(7))) is None
    (line,) = caplog.messages
    assert line == "a step of 8 rows cannot be recorded, nor will others be: CUDA out of memory"
    fake.is_out_of_memory = False
    assert graphs.run(batch(*rows(7))) is None
    assert graphs.run(batch(*rows(1))) is not None
    assert fake.recorded == [2]


@pytest.mark.parametrize(
    "step",
    [
        batch(),
        batch(row(1, 2, 3), row(4, 5, 6, wanted=())),
        batch(ScheduledRow(RowKey(0), (1, 2), 0, (PageId(0),), (1,))),
        batch(*rows(ROW_BUCKETS[-1] + 1)),
    ],
    ids=["nothing", "a row without logits", "a prompt", "too many rows"],
)
def test_other_steps_are_not_for_a_graph(step: ScheduledBatch) -> None:
    fake = FakeGraphs()
    assert fake.make().run(step) is None
    assert fake.recorded == []
