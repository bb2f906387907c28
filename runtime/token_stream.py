"""The events of one request on their way from the receiving task to the one that consumes them.

Belongs to the event loop's thread. An inbox holds what its consumer has not taken yet: at most
one event per token, so `max_tokens` per choice is its bound; nobody is slowed down by it. Tokens
that have waited together are taken together: who is behind catches up for the price of one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from runtime.messages import EngineFault, TokenEvent


class EventInbox:
    """Checks the order of events, keeps them for the consumer, knows which choices are open."""

    def __init__(
        self,
        request_id: str,
        num_choices: int,
        *,
        log_fields: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.request_id = request_id
        self.log_fields = log_fields
        self._loop = asyncio.get_running_loop()
        self._next_seq = dict.fromkeys(range(num_choices), 0)
        self._events: deque[TokenEvent] = deque()
        # The consumer's, while it waits: what an asyncio.Event does, for less.
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_finished(self) -> bool:
        """Whether each choice had its last event or was aborted; some may still be unread."""
        return not self._next_seq

    def deliver(self, event: TokenEvent) -> bool:
        """Takes the next event of a choice; False if events before it are missing.

        Events of a choice that is finished or aborted cross with its abort and are dropped.
        """
        expected = self._next_seq.get(event.choice)
        if expected is None:
            return True
        if event.seq != expected:
            return False
        if event.is_last:
            del self._next_seq[event.choice]
        else:
            self._next_seq[event.choice] = expected + 1
        self._put(event)
        return True

    def fail(self, fault: EngineFault) -> None:
        """Ends every open choice with an error."""
        for choice, seq in self._next_seq.items():
            self._put(TokenEvent(self.request_id, choice, seq, error=fault))
        self._next_seq.clear()

    def drop(self, choice: int | None) -> None:
        """Ends one choice, or all, without a further event; forgets unread ones of it."""
        if choice is None:
            self._next_seq.clear()
            self._events.clear()
        else:
            self._next_seq.pop(choice, None)
            self._events = deque(event for event in self._events if event.choice != choice)
        self._wake()

    async def take(self) -> TokenEvent | None:
        """The oldest unread event, with the tokens of those after it; None after the last one.
        There is one consumer."""
        while not self._events:
            if self.is_finished:
                return None
            self._waiter = self._loop.create_future()
            await self._waiter
        event = self._events.popleft()
        return self._joined(event) if self._events else event

    def _joined(self, first: TokenEvent) -> TokenEvent:
        """The event as one with those of its choice that add nothing but tokens or the end."""
        run = [first]
        for event in self._events:
            if event.choice != first.choice:
                continue
            if not _has_only_tokens(run[-1]) or not _adds_tokens(event):
                break
            run.append(event)
        last = run[-1]
        if last is first:
            return first
        self._events = deque(
            event for event in self._events if event.choice != last.choice or event.seq > last.seq
        )
        token_ids = [token_id for event in run for token_id in event.token_ids]
        return msgspec.structs.replace(last, token_ids=token_ids)

    def _put(self, event: TokenEvent) -> None:
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():  # it may have been cancelled
            waiter.set_result(None)


def _adds_tokens(event: TokenEvent) -> bool:
    """Log-probabilities keep events apart: not every token of one need have them."""
    has_more = event.admitted or event.logprobs or event.prompt_logprobs
    return not has_more and event.error is None


def _has_only_tokens(event: TokenEvent) -> bool:
    return _adds_tokens(event) and not event.phases and not event.is_last


class TokenStream:
    """What submit() returns: iterates over an inbox, aborts the request when left early.

    Left early means: closed, cancelled while waiting, or given up by everyone who held it.
    """

    def __init__(self, inbox: EventInbox, abort: Callable[[str], None]) -> None:
        self._inbox = inbox
        self._abort = abort
        self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> "TokenStream":
        return self

    async def __anext__(self) -> TokenEvent:
        try:
            event = await self._inbox.take()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if event is None:
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        """Aborts the request unless it is finished."""
        if not self._inbox.is_finished:
            self._abort(self._inbox.request_id)

    def __del__(self) -> None:
        # The collector may run in any thread.
        if not self._inbox.is_finished and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._abort, self._inbox.request_id)
