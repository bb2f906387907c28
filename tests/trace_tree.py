"""One request's trace as a collector got it: checked to be one tree of the documented shape."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from telemetry import names
from tests.otlp_receiver import OtlpReceiver, ReceivedSpan

PHASES = {
    names.SPAN_TOKENIZE,
    names.SPAN_QUEUE,
    names.SPAN_GRAMMAR_COMPILE,
    names.SPAN_CACHE_MATCH,
    names.SPAN_PREFILL,
    names.SPAN_DECODE,
    names.SPAN_VALIDATE,
}


@dataclass(frozen=True, slots=True)
class Caller:
    """The client's own span, of which the request is a child."""

    trace_id: str
    span_id: str

    @property
    def headers(self) -> dict[str, str]:
        return {"traceparent": f"00-{self.trace_id}-{self.span_id}-01"}


def caller(number: int) -> Caller:
    """One caller for each number."""
    return Caller(f"{0xCA11 << 64 | number + 1:032x}", f"{number + 1:016x}")


@dataclass(frozen=True, slots=True)
class TraceTree:
    """`model` is None where the body was refused."""

    server: ReceivedSpan
    model: ReceivedSpan | None
    phases: tuple[ReceivedSpan, ...]

    @property
    def num_phases(self) -> Counter[str]:
        return Counter(span.name for span in self.phases)

    @property
    def inner(self) -> ReceivedSpan:
        assert self.model is not None
        return self.model

    @property
    def ending(self) -> tuple[Any, Any, Any]:
        """Outcome, HTTP status and error type, which both spans agree on."""
        error = self.server.attributes.get(names.ERROR_TYPE)
        if self.model is not None:
            assert self.model.attributes.get(names.ERROR_TYPE) == error
            assert (self.model.status == "ERROR") == (error is not None)
        return (
            self.server.attributes[names.ATTR_OUTCOME],
            self.server.attributes[names.HTTP_STATUS],
            error,
        )

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.phases if span.name == name]

    def one(self, name: str) -> ReceivedSpan:
        (span,) = self.named(name)
        return span

    def total(self, name: str, attribute: str) -> int:
        """The sum of an attribute over all phases of a name."""
        return sum(int(span.attributes[attribute]) for span in self.named(name))

    def assert_fits(self, usage: Mapping[str, Any]) -> None:
        """The numbers on the spans of one finished choice are those that its client was told."""
        num_prompt, num_completion = usage["prompt_tokens"], usage["completion_tokens"]
        num_cached = usage["prompt_tokens_details"]["cached_tokens"]
        model = self.inner.attributes
        assert model[names.GEN_AI_USAGE_INPUT] == num_prompt
        assert model[names.GEN_AI_USAGE_OUTPUT] == num_completion
        assert model[names.GEN_AI_USAGE_CACHE_READ] == num_cached
        match, decode = self.one(names.SPAN_CACHE_MATCH), self.one(names.SPAN_DECODE)
        for attributes in (model, match.attributes):
            assert attributes[names.ATTR_CACHED_TOKENS] == num_cached
            assert attributes[names.ATTR_COMPUTED_TOKENS] == num_prompt - num_cached
        assert self.total(names.SPAN_TOKENIZE, names.ATTR_TOKENS) == num_prompt
        # What a grammar forces from the start is computed along with the prompt.
        num_along = self.total(names.SPAN_PREFILL, names.ATTR_TOKENS) - (num_prompt - num_cached)
        assert 0 <= num_along <= decode.attributes.get(names.ATTR_FORCED_TOKENS, 0)
        assert decode.attributes[names.ATTR_TOKENS] == num_completion
        reasons = model[names.GEN_AI_RESPONSE_FINISH_REASONS]
        assert reasons == (decode.attributes[names.ATTR_FINISH_REASON],)
        server_ms = (self.server.end_ns - self.server.start_ns) / 1e6
        assert 0 < model[names.ATTR_TTFT_MS] < server_ms
        assert model[names.ATTR_MASK_TIME_MS] == decode.attributes[names.ATTR_MASK_TIME_MS]

    def assert_in_order(self) -> None:
        """Each phase lies within the request, and the phases of one choice follow each other."""
        for span in (self.inner, *self.phases):
            assert self.server.start_ns <= span.start_ns <= span.end_ns <= self.server.end_ns
        order = [
            self.one(names.SPAN_TOKENIZE),
            self.one(names.SPAN_QUEUE),
            self.one(names.SPAN_CACHE_MATCH),
            *self.named(names.SPAN_PREFILL),
            *self.named(names.SPAN_DECODE),
        ]
        ends = [span.end_ns for span in order]
        assert ends == sorted(ends), [span.name for span in order]


async def received_trace(
    receiver: OtlpReceiver, parent: Caller, *, route: str = "/v1/chat/completions"
) -> TraceTree:
    """Waits for the trace that continues the caller's. A SERVER span is the last of its trace to
    end, and spans arrive in the order in which they end."""

    def has_arrived(spans: Sequence[ReceivedSpan]) -> bool:
        return any(span.kind == "SERVER" and span.trace_id == parent.trace_id for span in spans)

    spans = await asyncio.to_thread(receiver.wait_for_spans, has_arrived)
    return read_tree([span for span in spans if span.trace_id == parent.trace_id], parent, route)


def read_tree(spans: Sequence[ReceivedSpan], parent: Caller, route: str) -> TraceTree:
    """Fails unless the spans are SERVER > chat or text_completion > phases."""
    (server,) = [span for span in spans if span.kind == "SERVER"]
    assert (server.name, server.parent_id) == (f"POST {route}", parent.span_id)
    models = [span for span in spans if span.parent_id == server.span_id]
    phases = [span for span in spans if span is not server and span not in models]
    assert len(models) <= 1
    for span in (*models, *phases):
        assert span.kind == "INTERNAL"
    for span in phases:
        assert (span.name in PHASES, span.parent_id) == (True, models[0].span_id)
    return TraceTree(server, models[0] if models else None, tuple(phases))
