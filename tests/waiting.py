"""Waiting, with a bound, for a condition that no event announces (another process, a log)."""

import asyncio
from collections.abc import Callable

POLL_S = 0.005


async def until(condition: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
    """Returns once the condition holds. Raises: TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
