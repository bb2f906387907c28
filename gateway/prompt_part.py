"""What an answer has of its prompt: its token ids, its echo, its scores. One per prompt that asks
for any of it, owned by GenerationRun."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gateway.detokenizer import Detokenizer
from gateway.generation import GenerationRequest, LogprobEntry, TextDelta, TextPrompt
from gateway.token_entries import TokenEntries
from gateway.tokenizer import Tokenizer
from runtime.messages import TokenEvent, TokenLogprob


class PromptPart:
    """Comes before the tokens of each choice, which are held until the prompt's scores are there:
    those come with the first choice."""

    def __init__(
        self,
        request: GenerationRequest,
        index: int,
        *,
        token_ids: Sequence[int],
        tokenizer: Tokenizer,
    ) -> None:
        self._request = request
        self._first_choice = index * request.num_choices
        self._prompt = request.prompts[index]
        self._token_ids = tuple(token_ids)
        self._tokenizer = tokenizer
        self._entries = TokenEntries(
            tokenizer,
            num_top=request.sampling.num_logprobs or 0,
            as_ids=request.text.tokens_as_ids,
            keeps_special=request.text.keeps_special,
        )
        self._held: list[TokenEvent] = []
        self._is_told = False
        self._needs_scores = wants_scores(request) and len(token_ids) > 1

    def take(self, event: TokenEvent) -> Iterator[TextDelta | TokenEvent]:
        """What may go out now: the prompt's part once, then the events that waited for it."""
        if self._is_told:
            yield event
            return
        self._held.append(event)
        if self._needs_scores and not event.prompt_logprobs:
            return
        self._is_told = True
        yield from self._deltas(event.prompt_logprobs)
        yield from self._held
        self._held.clear()

    def _deltas(self, scores: Sequence[TokenLogprob]) -> Iterator[TextDelta]:
        options = self._request.text
        text = self._text() if options.echoes else ""
        logprobs = self._scored(scores) if wants_scores(self._request) else ()
        for choice in range(self._first_choice, self._first_choice + self._request.num_choices):
            yield TextDelta(
                choice=choice,
                text=text,
                logprobs=logprobs,
                prompt_token_ids=self._token_ids if options.returns_ids else None,
            )

    def _text(self) -> str:
        """As the client wrote it; token ids as they decode."""
        written = self._written()
        if written is not None:
            return written
        detokenizer = Detokenizer(self._tokenizer, keeps_special=self._request.text.keeps_special)
        pieces = [detokenizer.feed(token_id) for token_id in self._token_ids]
        return "".join((*pieces, detokenizer.flush()))

    def _written(self) -> str | None:
        """The client's own text, all of which is the prompt."""
        is_cut = self._request.truncate_prompt_tokens is not None
        return self._prompt.text if isinstance(self._prompt, TextPrompt) and not is_cut else None

    def _scored(self, scores: Sequence[TokenLogprob]) -> tuple[LogprobEntry, ...]:
        first, *others = self._token_ids
        entries = (
            self._entries.unscored(first),
            *(self._entries.of(*pair) for pair in zip(others, scores, strict=True)),
        )
        written = self._written()
        return entries if written is None else tuple(self._as_written(entries, written.encode()))

    def _as_written(self, entries: Iterable[LogprobEntry], text: bytes) -> Iterator[LogprobEntry]:
        """With the bytes that each token has in the text, which has the control tokens that a
        client wrote, and neither those nor the space that the tokenizer put in front."""
        start = 0
        for token_id, entry in zip(self._token_ids, entries, strict=True):
            raw = self._tokenizer.token_bytes(token_id)
            if not text.startswith(raw, start):
                is_space = raw[:1] == b" " and text.startswith(raw[1:], start)
                raw = raw[1:] if is_space else entry.raw
                raw = b"" if self._tokenizer.is_special(token_id) else raw
            start += len(raw)
            yield msgspec.structs.replace(entry, raw=raw)


def wants_part(request: GenerationRequest) -> bool:
    """Whether answers have anything of their prompts."""
    return request.text.echoes or request.text.returns_ids


def wants_scores(request: GenerationRequest) -> bool:
    """Whether the prompt's tokens are to be scored."""
    return request.text.echoes and request.sampling.num_logprobs is not None
