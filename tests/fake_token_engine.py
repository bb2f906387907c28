"""A TokenEngine without a model: answers each submit with the token lists of a script.

`script(submit, choice)` gives the tokens of one choice; end of sequence (`IM_END`) follows them
unless max_tokens is reached first. Nothing here waits for time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal, assert_never

import msgspec

from runtime.cache_messages import (
    CacheAnswer,
    CacheDescription,
    CacheExplanation,
    CacheFlushed,
    CacheQuery,
    DescribeCache,
    ExplainCache,
    FlushCache,
    TierName,
)
from runtime.messages import (
    ChoiceUsage,
    EngineFault,
    EngineInfo,
    EngineStats,
    Phase,
    Submit,
    TokenEvent,
    TokenLogprob,
)
from runtime.token_engine import EngineState, EngineUnavailable
from telemetry import names
from tests.byte_tokenizer import IM_END, VOCAB_SIZE

Script = Callable[[Submit, int], Sequence[int]]
AnswerScript = Callable[[CacheQuery], CacheAnswer]
HoldPoint = Literal["queue", "decode"]

INFO = EngineInfo(
    engine_id="fake",
    incarnation="1",
    model_hash="0" * 64,
    architecture="llama",
    dtype="float32",
    device="cpu",
    vocab_size=VOCAB_SIZE,
    eos_token_ids=(IM_END,),
    max_model_len=128,
    page_size=16,
    num_pages=64,
    max_running=8,
    kv_root=b"fake",
)


def hello(_submit: Submit, _choice: int) -> Sequence[int]:
    """The default script."""
    return list(b"Hello, world!")


def empty_cache(query: CacheQuery) -> CacheAnswer:
    """The default answers: nothing is cached, nothing was ever seen."""
    match query:
        case ExplainCache():
            num_tokens = len(query.prompt_token_ids)
            return CacheExplanation(query.request_id, num_tokens, 0, reason="never_seen")
        case DescribeCache():
            return CacheDescription(
                request_id=query.request_id,
                page_size=INFO.page_size,
                page_bytes=INFO.page_bytes,
                pages_free=INFO.num_pages,
                pages_cached=0,
                pages_locked=0,
                pages_held=0,
                pages_total=INFO.num_pages,
                num_evicted_pages=0,
                owners=[],
            )
        case FlushCache():
            return CacheFlushed(query.request_id, 0)
        case _:
            assert_never(query)


class FakeTokenEngine:
    """`submitted` and `aborted` record what was asked; `open_requests` are those whose iterator
    has not ended. `hold(point)` makes requests wait in the queue, or after their first token,
    until `release()`. `fault` ends each choice with that error, after `fault_after` tokens
    (None = in the queue, before admission).
    `unavailable` makes submit() and ask() raise. `answers` is the script of ask(), `asked` records
    what was. `cached_tokens` is what cache.match reports. A first
    choice's tokens, and its prompt's scores, come `first_choice_delay` events after the others'.
    """

    def __init__(
        self, script: Script = hello, *, tokens_per_event: int = 1, info: EngineInfo | None = INFO
    ) -> None:
        self.script = script
        self.tokens_per_event = tokens_per_event
        self.info = info
        self.state = EngineState.READY
        self.stats = EngineStats(pages_free=64, pages_total=64)
        self.submitted: list[Submit] = []
        self.aborted: list[tuple[str, int | None]] = []
        self.open_requests: set[str] = set()
        self.fault: EngineFault | None = None
        self.fault_after: int | None = None
        self.unavailable: str | None = None
        self.answers: AnswerScript = empty_cache
        self.asked: list[CacheQuery] = []
        self.cached_tokens = 0
        self.tier_tokens: dict[TierName, int] = {}
        self.first_choice_delay = 0
        self._held_at: HoldPoint | None = None
        self._released = asyncio.Event()

    def hold(self, point: HoldPoint = "queue") -> None:
        self._held_at = point
        self._released.clear()

    def release(self) -> None:
        self._held_at = None
        self._released.set()

    async def start(self) -> None:
        self.state = EngineState.READY

    async def stop(self) -> None:
        self.state = EngineState.STOPPED

    def submit(self, request: Submit) -> AsyncIterator[TokenEvent]:
        if self.unavailable is not None:
            raise EngineUnavailable(self.unavailable)
        self.submitted.append(request)
        self.open_requests.add(request.request_id)
        return self._run(request)

    async def ask(self, query: CacheQuery) -> CacheAnswer:
        if self.unavailable is not None:
            raise EngineUnavailable(self.unavailable)
        self.asked.append(query)
        await asyncio.sleep(0)
        return self.answers(query)

    def abort(self, request_id: str, choice: int | None = None) -> None:
        self.aborted.append((request_id, choice))
        if choice is None:
            self.open_requests.discard(request_id)

    async def _run(self, request: Submit) -> AsyncIterator[TokenEvent]:
        try:
            await self._wait("queue")
            rows = [self._events(request, choice) for choice in range(request.num_choices)]
            for step in range(max(len(row) for row in rows)):
                for choice, row in enumerate(rows):
                    if step < len(row) and not self._is_aborted(request.request_id, choice):
                        yield row[step]
                await asyncio.sleep(0)
                if step > 0:
                    await self._wait("decode")
        finally:
            self.open_requests.discard(request.request_id)

    async def _wait(self, point: HoldPoint) -> None:
        if self._held_at == point:
            await self._released.wait()

    def _is_aborted(self, request_id: str, choice: int) -> bool:
        return (request_id, choice) in self.aborted or (request_id, None) in self.aborted

    def _events(self, request: Submit, choice: int) -> list[TokenEvent]:
        """Admission, then the tokens in events of `tokens_per_event`, the last one final."""
        token_ids, is_stopped = self._tokens(request, choice)
        if self.fault is not None:
            if self.fault_after is None:
                return [self._failure(request, choice, seq=0)]
            token_ids = token_ids[: self.fault_after]
        events = [self._admission(request, choice)]
        for start in range(0, len(token_ids), self.tokens_per_event):
            chunk = token_ids[start : start + self.tokens_per_event]
            events.append(
                TokenEvent(
                    request_id=request.request_id,
                    choice=choice,
                    seq=len(events),
                    token_ids=chunk,
                    logprobs=fake_logprobs(chunk, request.sampling.num_logprobs),
                )
            )
        if not token_ids:  # the prompt is scored only
            events.append(TokenEvent(request_id=request.request_id, choice=choice, seq=1))
        if choice == 0:
            events[1] = _scored(events[1], request)
            blank = TokenEvent(request_id=request.request_id, choice=0, seq=1)
            events[1:1] = [blank] * self.first_choice_delay
        return self._with_end(
            request, events=events, is_stopped=is_stopped, num_tokens=len(token_ids)
        )

    def _tokens(self, request: Submit, choice: int) -> tuple[list[int], bool]:
        token_ids = [*self.script(request, choice), IM_END]
        limit = request.sampling.max_tokens
        return token_ids[:limit], len(token_ids) <= limit

    def _admission(self, request: Submit, choice: int) -> TokenEvent:
        cached = min(self.cached_tokens, len(request.prompt_token_ids) - 1)
        attributes = {names.ATTR_CACHED_TOKENS: cached, names.ATTR_CHOICE: choice}
        phases = [
            Phase(name=names.SPAN_QUEUE, start_ns=1, end_ns=2),
            Phase(name=names.SPAN_CACHE_MATCH, start_ns=2, end_ns=3, attributes=dict(attributes)),
        ]
        return TokenEvent(
            request_id=request.request_id, choice=choice, seq=0, admitted=True, phases=phases
        )

    def _failure(self, request: Submit, choice: int, *, seq: int) -> TokenEvent:
        return TokenEvent(request_id=request.request_id, choice=choice, seq=seq, error=self.fault)

    def _with_end(
        self, request: Submit, *, events: list[TokenEvent], is_stopped: bool, num_tokens: int
    ) -> list[TokenEvent]:
        if self.fault is not None:
            return [*events, self._failure(request, events[0].choice, seq=len(events))]
        last = events.pop()
        num_prompt = len(request.prompt_token_ids)
        final = TokenEvent(
            request_id=last.request_id,
            choice=last.choice,
            seq=last.seq,
            token_ids=last.token_ids,
            logprobs=last.logprobs,
            prompt_logprobs=last.prompt_logprobs,
            phases=[
                Phase(
                    name=names.SPAN_DECODE,
                    start_ns=3,
                    end_ns=4,
                    attributes={names.ATTR_TOKENS: num_tokens, names.ATTR_CHOICE: last.choice},
                )
            ],
            finish_reason="stop" if is_stopped else "length",
            stop_token_id=IM_END if is_stopped else None,
            usage=ChoiceUsage(
                prompt_tokens=num_prompt,
                cached_tokens=min(self.cached_tokens, num_prompt - 1),
                completion_tokens=num_tokens,
                written_tokens=request.num_written(min(self.cached_tokens, num_prompt - 1)),
                tier_tokens=self.tier_tokens,
            ),
        )
        return [*events, final]


def _scored(event: TokenEvent, request: Submit) -> TokenEvent:
    scores = fake_logprobs(request.prompt_token_ids[1:], request.num_prompt_logprobs)
    return msgspec.structs.replace(event, prompt_logprobs=scores)


def fake_logprobs(token_ids: Sequence[int], num_logprobs: int | None) -> list[TokenLogprob]:
    """-0.5 for each token, and the ids above it as the less likely alternatives."""
    if num_logprobs is None:
        return []
    return [
        TokenLogprob(
            logprob=-0.5,
            top=tuple(((token_id + k) % VOCAB_SIZE, -0.5 - k) for k in range(num_logprobs)),
        )
        for token_id in token_ids
    ]
