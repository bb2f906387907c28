"""merge_streams: order, fairness, and what an early end leaves behind."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from gateway.merged_streams import merge_streams


class Source:
    """A stream that gives what was put into it; None ends it."""

    def __init__(self, *items: int | None) -> None:
        self.queue: asyncio.Queue[int | None] = asyncio.Queue()
        self.num_taken = 0
        self.put(*items)

    def put(self, *items: int | None) -> None:
        for item in items:
            self.queue.put_nowait(item)

    async def stream(self) -> AsyncIterator[int]:
        while (item := await self.queue.get()) is not None:
            self.num_taken += 1
            yield item


async def failing() -> AsyncIterator[int]:
    yield 1
    raise ValueError("broken")


async def test_items_keep_their_order_and_name_their_stream() -> None:
    merged = merge_streams([Source(1, 2, None).stream(), Source(3, None).stream()])
    items = [pair async for pair in merged]
    assert sorted(items) == [(0, 1), (0, 2), (1, 3)]
    assert [value for index, value in items if index == 0] == [1, 2]


async def test_a_silent_stream_does_not_hold_up_the_others() -> None:
    silent = Source()
    async with aclosing(merge_streams([silent.stream(), Source(1, 2).stream()])) as merged:
        assert [await anext(merged), await anext(merged)] == [(1, 1), (1, 2)]
        silent.put(7)
        assert await anext(merged) == (0, 7)


@pytest.mark.parametrize("num_streams", [1, 2])
async def test_an_item_is_taken_only_after_the_last_one_was_consumed(num_streams: int) -> None:
    sources = [Source(1, 2) for _ in range(num_streams)]
    async with aclosing(merge_streams([s.stream() for s in sources])) as merged:
        index, _ = await anext(merged)
        await asyncio.sleep(0)
        assert sources[index].num_taken == 1


@pytest.mark.parametrize("num_others", [0, 1])
async def test_an_exception_of_one_stream_ends_all(num_others: int) -> None:
    merged = merge_streams([failing(), *(Source().stream() for _ in range(num_others))])
    assert await anext(merged) == (0, 1)
    with pytest.raises(ValueError, match="broken"):
        await anext(merged)


async def test_closing_early_leaves_no_task() -> None:
    merged = merge_streams([Source(1).stream(), Source().stream()])
    await anext(merged)
    await merged.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}
