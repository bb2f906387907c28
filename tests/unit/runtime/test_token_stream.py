"""Inbox and stream of one request: order, ends, and who gets to abort."""

import asyncio

import msgspec
import pytest

from runtime.messages import (
    ChoiceUsage,
    EngineFault,
    ErrorCode,
    Phase,
    TokenEvent,
    TokenLogprob,
)
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


SCORE = TokenLogprob(-0.5)
PHASE = Phase("radixgate.decode", 1, 2)
USAGE = ChoiceUsage(prompt_tokens=1, cached_tokens=0, completion_tokens=3)


async def test_tokens_that_waited_are_taken_together_with_the_end() -> None:
    inbox = EventInbox("r1", 1)
    inbox.deliver(TokenEvent("r1", 0, 0, [5]))
    inbox.deliver(TokenEvent("r1", 0, 1, [6, 7]))
    end = TokenEvent("r1", 0, 2, [8], finish_reason="stop", stop_token_id=8, usage=USAGE)
    inbox.deliver(msgspec.structs.replace(end, phases=[PHASE]))
    assert await inbox.take() == msgspec.structs.replace(
        end, token_ids=[5, 6, 7, 8], phases=[PHASE]
    )
    assert await inbox.take() is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (TokenEvent("r1", 0, 0, [5], admitted=True), TokenEvent("r1", 0, 1, [6])),
        (TokenEvent("r1", 0, 0, [5], phases=[PHASE]), TokenEvent("r1", 0, 1, [6])),
        (TokenEvent("r1", 0, 0, [5], logprobs=[SCORE]), TokenEvent("r1", 0, 1, [6])),
        (TokenEvent("r1", 0, 0, [5]), TokenEvent("r1", 0, 1, [6], logprobs=[SCORE])),
        (TokenEvent("r1", 0, 0, [5]), TokenEvent("r1", 0, 1, [6], prompt_logprobs=[SCORE])),
        (TokenEvent("r1", 0, 0, [5]), TokenEvent("r1", 0, 1, admitted=True)),
        (TokenEvent("r1", 0, 0, [5]), TokenEvent("r1", 0, 1, error=FAULT)),
        (TokenEvent("r1", 0, 0, [5]), TokenEvent("r1", 1, 0, [6])),
    ],
)
async def test_what_says_more_than_tokens_comes_by_itself(
    first: TokenEvent, second: TokenEvent
) -> None:
    inbox = EventInbox("r1", 2)
    inbox.deliver(first)
    inbox.deliver(second)
    assert [await inbox.take(), await inbox.take()] == [first, second]


async def test_each_choice_catches_up_by_itself() -> None:
    inbox = EventInbox("r1", 2)
    for seq in range(3):
        for choice in range(2):
            inbox.deliver(TokenEvent("r1", choice, seq, [10 * choice + seq]))
    taken = [await inbox.take(), await inbox.take()]
    assert [event.token_ids for event in taken if event is not None] == [[0, 1, 2], [10, 11, 12]]
    inbox.deliver(TokenEvent("r1", 0, 3, [3], finish_reason="length"))
    inbox.deliver(TokenEvent("r1", 1, 3, [13], finish_reason="length"))
    assert await rest(inbox) == [(0, 3), (1, 3)]


async def test_an_error_comes_after_all_tokens_before_it() -> None:
    inbox = EventInbox("r1", 1)
    inbox.deliver(TokenEvent("r1", 0, 0, [5]))
    inbox.deliver(TokenEvent("r1", 0, 1, [6]))
    inbox.fail(FAULT)
    tokens = await inbox.take()
    assert tokens is not None
    assert tokens.token_ids == [5, 6]
    assert await inbox.take() == TokenEvent("r1", 0, 2, error=FAULT)
