"""What a cached prefix still costs: `python -m tests.bench.prefix_attention`.

Steps of the executor that serves the default model, with rows behind a prefix of 1,408 tokens that
is in the pages, and by turns the same rows without it. What the rows behind the prefix take longer
is their attention to it, which no cache saves; it is printed in ms and GFLOP/s (2 multiplications
and 2 additions a pair of tokens, head and channel).
"""

import argparse
import shlex
import statistics
import sys
import time

from runtime.batch import Executor, PageId, RowKey, ScheduledBatch, ScheduledRow
from runtime.config import RuntimeConfig
from runtime.model_runner import load_executor
from runtime.model_source import ModelSource, open_model
from tests.bench.machine import this_machine
from tests.model_file import default_model_path

PAGE_SIZE = 16
PREFIX_PAGES = 88
PREFIX_LEN = PREFIX_PAGES * PAGE_SIZE
CHUNK_LEN = 352
# Rows and their tokens: prompts of about 45 tokens as in the bench `cache_shared`, and decode rows.
SHAPES = ((1, 45), (4, 45), (11, 45), (16, 1))


def main() -> int:
    """Prints a line a shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(this_machine().describe())
    print(shlex.join(["python", "-m", "tests.bench.prefix_attention", *sys.argv[1:]]))
    path = str(default_model_path())
    source = open_model(path)
    executor = load_executor(source, RuntimeConfig(model=path)).executor
    for start in range(0, PREFIX_LEN, CHUNK_LEN):
        executor.forward(ScheduledBatch(0, (_row(0, start, CHUNK_LEN, has_prefix=True),)))
    for num_rows, row_len in SHAPES:
        _measure(executor, source, num_rows=num_rows, row_len=row_len, rounds=options.rounds)
    return 0


def _measure(
    executor: Executor, source: ModelSource, *, num_rows: int, row_len: int, rounds: int
) -> None:
    behind = [_row(index, PREFIX_LEN, row_len, has_prefix=True) for index in range(num_rows)]
    alone = [_row(index, 0, row_len, has_prefix=False) for index in range(num_rows)]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for rows, elapsed in zip((behind, alone), times, strict=True):
            start = time.perf_counter()
            executor.forward(ScheduledBatch(0, tuple(rows)))
            elapsed.append(1e3 * (time.perf_counter() - start))
    behind_ms, alone_ms = map(statistics.median, times)
    spec = source.spec
    pairs = num_rows * row_len * PREFIX_LEN
    flops = 4 * pairs * spec.num_heads * spec.head_dim * spec.num_layers
    print(
        f"{num_rows:2} rows of {row_len:2} tokens: {behind_ms:6.1f} ms behind the prefix,"
        f" {alone_ms:6.1f} ms without: {behind_ms / alone_ms:.2f} times; attention to the prefix"
        f" {behind_ms - alone_ms:5.1f} ms, {flops / 1e6 / (behind_ms - alone_ms):.0f} GFLOP/s"
    )


def _row(index: int, start: int, num_tokens: int, *, has_prefix: bool) -> ScheduledRow:
    own_pages = -(-CHUNK_LEN // PAGE_SIZE)
    first_own = PREFIX_PAGES + own_pages * index
    pages = [*range(PREFIX_PAGES if has_prefix else 0), *range(first_own, first_own + own_pages)]
    return ScheduledRow(
        key=RowKey(index),
        token_ids=tuple((7 * place + index) % 4000 + 100 for place in range(num_tokens)),
        start=start,
        page_ids=tuple(map(PageId, pages)),
        sample_offsets=(num_tokens - 1,),
    )


if __name__ == "__main__":
    sys.exit(main())
