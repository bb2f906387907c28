"""One choice of an answer that is kept back until it is known to be valid."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from gateway.reasoning import answer_start
from gateway.tokenizer import Tokenizer
from grammar.spec import Reasoning
from runtime.messages import Phase, TokenEvent, TokenLogprob


@dataclass(eq=False, slots=True)
class HeldAnswer:
    """`token_ids` are without the one that ended it. Those of a block of reasoning come first and
    are no part of the text."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    last_event: TokenEvent | None = None
    reasoning: Reasoning | None = None

    @property
    def last(self) -> TokenEvent:
        """The event that ended it."""
        assert self.last_event is not None, "it is asked for when it is over"
        return self.last_event

    def add(self, event: TokenEvent) -> None:
        num_texts = len(event.token_ids) - (event.stop_token_id is not None)
        self.token_ids += event.token_ids[:num_texts]
        self.logprobs += event.logprobs
        if event.is_last:
            self.last_event = event

    def before(self, position: int) -> "HeldAnswer":
        """Its beginning, to be gone on with."""
        return HeldAnswer(
            self.token_ids[:position], self.logprobs[:position], reasoning=self.reasoning
        )

    def text(self, tokenizer: Tokenizer) -> str:
        start = answer_start(self.token_ids, self.reasoning)
        return b"".join(_bytes(self.token_ids[start:], tokenizer)).decode(errors="replace")

    def token_at(self, offset: int, tokenizer: Tokenizer) -> int:
        """The index of the token that has this character of the text."""
        left = len(self.text(tokenizer)[:offset].encode())
        start = answer_start(self.token_ids, self.reasoning)
        for index, raw in enumerate(_bytes(self.token_ids[start:], tokenizer), start):
            if left < len(raw):
                return index
            left -= len(raw)
        return len(self.token_ids) - 1

    def released(self, phases: Sequence[Phase] = ()) -> TokenEvent:
        """Its last event, with all that was kept back and these phases."""
        stop = [] if self.last.stop_token_id is None else [self.last.stop_token_id]
        return msgspec.structs.replace(
            self.last,
            token_ids=[*self.token_ids, *stop],
            logprobs=self.logprobs,
            phases=list(phases),
        )


def only_phases(event: TokenEvent) -> TokenEvent:
    """What is told at once: that the request was admitted, what it went through and took of the
    cache, and the scores of its prompt."""
    usage = event.usage
    if usage is not None:  # of tokens that nobody has
        usage = msgspec.structs.replace(usage, forced_tokens=0)
    return TokenEvent(
        request_id=event.request_id,
        choice=event.choice,
        seq=event.seq,
        admitted=event.admitted,
        prompt_logprobs=event.prompt_logprobs,
        phases=event.phases,
        usage=usage,
    )


def _bytes(token_ids: Sequence[int], tokenizer: Tokenizer) -> list[bytes]:
    """Control tokens have no text in an answer."""
    return [
        b"" if tokenizer.is_special(token_id) else tokenizer.token_bytes(token_id)
        for token_id in token_ids
    ]
