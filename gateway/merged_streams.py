"""Several asynchronous streams as one, in the order in which their items arrive."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


async def merge_streams(
    streams: Sequence[AsyncIterator[Item]],
) -> AsyncGenerator[tuple[int, Item], None]:
    """Yields (index of the stream, item). An item is taken from a stream only after its last one
    was consumed. An exception of one stream ends all; the streams' owner closes them.
    """
    if len(streams) == 1:  # the usual case needs no task per item
        async for item in streams[0]:
            yield 0, item
        return
    waiting = {_next_item(stream): index for index, stream in enumerate(streams)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=waiting.__getitem__):
                index = waiting.pop(task)
                try:
                    item = task.result()
                except StopAsyncIteration:
                    continue
                yield index, item
                waiting[_next_item(streams[index])] = index
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _next_item(stream: AsyncIterator[Item]) -> asyncio.Task[Item]:
    return asyncio.ensure_future(_anext(stream))


async def _anext(stream: AsyncIterator[Item]) -> Item:
    return await anext(stream)
