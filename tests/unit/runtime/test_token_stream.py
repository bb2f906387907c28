"""Inbox and stream of one request: order, ends, and who gets to abort."""

import asyncio

import pytest

from runtime.messages import EngineFault, ErrorCode, TokenEvent
from runtime.token_stream import EventInbox, TokenStream

FAULT = EngineFault(ErrorCode.ENGINE_DIED, "gone")


async def rest(inbox: EventInbox) -> list[tuple[int, int]]:
    taken: list[tuple[int, int]] = []
    while (event := await inbox.take()) is not None:
        taken.append((event.choice, event.seq))
    return taken


async def test_a_failure_ends_only_the_choices_that_are_open() -> None:
    inbox = EventInbox("r1", 3)
    assert inbox.deliver(TokenEvent("r1", 0, 0))
    assert inbox.deliver(TokenEvent("r1", 1, 0, finish_reason="stop"))
    inbox.fail(FAULT)
    inbox.fail(FAULT)
    assert inbox.is_finished
    assert await rest(inbox) == [(0, 0), (1, 0), (0, 1), (2, 0)]


async def test_a_gap_is_not_taken_and_changes_nothing() -> None:
    inbox = EventInbox("r1", 1)
    assert not inbox.deliver(TokenEvent("r1", 0, 1))
    assert inbox.deliver(TokenEvent("r1", 0, 0, finish_reason="stop"))
    assert await rest(inbox) == [(0, 0)]


async def test_events_after_the_last_one_of_a_choice_are_dropped() -> None:
    inbox = EventInbox("r1", 2)
    assert inbox.deliver(TokenEvent("r1", 0, 0, finish_reason="stop"))
    assert inbox.deliver(TokenEvent("r1", 0, 1))
    inbox.drop(1)
    assert await rest(inbox) == [(0, 0)]


async def test_a_dropped_choice_takes_its_unread_events_with_it() -> None:
    inbox = EventInbox("r1", 2)
    inbox.deliver(TokenEvent("r1", 0, 0))
    inbox.deliver(TokenEvent("r1", 1, 0, finish_reason="stop"))
    inbox.drop(0)
    assert await rest(inbox) == [(1, 0)]


async def test_a_consumer_that_waits_is_woken_by_an_event_and_by_the_end() -> None:
    inbox = EventInbox("r1", 1)
    consumer = asyncio.create_task(rest(inbox))
    await asyncio.sleep(0)
    inbox.deliver(TokenEvent("r1", 0, 0))
    await asyncio.sleep(0)
    inbox.drop(None)
    assert await consumer == [(0, 0)]


@pytest.mark.parametrize(("is_finished", "aborted"), [(True, []), (False, ["r1"])])
async def test_closing_a_stream_aborts_only_an_unfinished_request(
    is_finished: bool, aborted: list[str]
) -> None:
    inbox = EventInbox("r1", 1)
    if is_finished:
        inbox.deliver(TokenEvent("r1", 0, 0, finish_reason="stop"))
    calls: list[str] = []

    def abort(request_id: str) -> None:
        calls.append(request_id)
        inbox.drop(None)

    stream = TokenStream(inbox, abort)
    await stream.aclose()
    await stream.aclose()
    assert calls == aborted
