"""Answers of /v1/completions: whole and streamed objects share the name `text_completion`."""

import codecs

import msgspec

from gateway.errors import GatewayError
from gateway.generation import ChoiceFinished, LogprobEntry, TextDelta, Usage
from gateway.schemas.answer import AnswerHead, ChoiceResult
from gateway.schemas.usage import UsageBody
from gateway.sse import DONE, error_frame

_encode = msgspec.json.encode


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """The legacy shape; the first token of an echoed prompt has null for its values.
    `text_offset` counts characters from the start of the choice's text."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True):
    """`reasoning_content` is ours: what came before a constrained text."""

    text: str
    index: int
    logprobs: CompletionLogprobs | None
    finish_reason: str
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    prompt_token_ids: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET


class Completion(msgspec.Struct, frozen=True):
    id: str
    object: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: UsageBody
    system_fingerprint: str


class OffsetCounter:
    """Where each token starts in a choice's text, though a character may span tokens."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._num_chars = 0

    def advance(self, raw: bytes) -> int:
        """The offset of a token, which is counted as consumed."""
        offset = self._num_chars
        self._num_chars += len(self._decoder.decode(raw))
        return offset


class CompletionPresenter:
    """Wire shape of one completion request."""

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._before = _chunk_start(head)
        self._after = b',"usage":null}\n\n' if head.includes_usage else b"}\n\n"
        self._offsets = [OffsetCounter() for _ in range(head.num_choices)]

    def opening(self) -> bytes:
        return b""

    def delta(self, delta: TextDelta) -> bytes:
        if not delta.reasoning:
            return self._text(delta)
        extra = b',"reasoning_content":' + _encode(delta.reasoning)
        thought = self._chunk(delta.choice, "", extra=extra)
        return thought + self._text(delta)

    def _text(self, delta: TextDelta) -> bytes:
        logprobs = b"null"
        if self._head.has_logprobs and delta.logprobs:
            offsets = self._offsets[delta.choice]
            logprobs = _encode(completion_logprobs(delta.logprobs, offsets))
        elif not delta.text and not delta.token_ids and delta.prompt_token_ids is None:
            return b""
        return self._chunk(delta.choice, delta.text, logprobs=logprobs, extra=_encode_ids(delta))

    def finish(self, finished: ChoiceFinished) -> bytes:
        return self._chunk(finished.choice, "", finish_reason=_encode(finished.reason))

    def closing(self, usage: Usage) -> bytes:
        if not self._head.includes_usage:
            return DONE
        return self._before + b'[],"usage":' + _encode(UsageBody.of(usage)) + b"}\n\n" + DONE

    def failure(self, error: GatewayError) -> bytes:
        return error_frame(error)

    def silence(self) -> bytes:
        return self._chunk(0, "")

    def body(self, choices: list[ChoiceResult], usage: Usage) -> Completion:
        head = self._head
        return Completion(
            id=head.id,
            object="text_completion",
            created=head.created,
            model=head.model,
            choices=[self._choice(index, choice) for index, choice in enumerate(choices)],
            usage=UsageBody.of(usage),
            system_fingerprint=head.system_fingerprint,
        )

    def _choice(self, index: int, choice: ChoiceResult) -> CompletionChoice:
        logprobs = None
        if self._head.has_logprobs:
            logprobs = completion_logprobs(choice.logprobs, OffsetCounter())
        return CompletionChoice(
            text=choice.text,
            index=index,
            logprobs=logprobs,
            finish_reason=choice.finish_reason,
            reasoning_content=choice.reasoning,
            token_ids=choice.shown_ids,
            prompt_token_ids=(
                msgspec.UNSET if choice.prompt_token_ids is None else choice.prompt_token_ids
            ),
        )

    def _chunk(
        self,
        index: int,
        text: str,
        *,
        logprobs: bytes = b"null",
        finish_reason: bytes = b"null",
        extra: bytes = b"",
    ) -> bytes:
        return b"".join(
            (
                self._before,
                b'[{"index":%d,"text":' % index,
                _encode(text),
                b',"logprobs":',
                logprobs,
                b',"finish_reason":',
                finish_reason,
                extra,
                b"}]",
                self._after,
            )
        )


def completion_logprobs(
    entries: "list[LogprobEntry] | tuple[LogprobEntry, ...]", offsets: OffsetCounter
) -> CompletionLogprobs:
    """The sampled token is in each `top_logprobs`, whether it is among the best or not."""
    return CompletionLogprobs(
        tokens=[_token_text(entry) for entry in entries],
        token_logprobs=[entry.logprob for entry in entries],
        top_logprobs=[_best(entry) for entry in entries],
        text_offset=[offsets.advance(entry.raw) for entry in entries],
    )


def _best(entry: LogprobEntry) -> dict[str, float] | None:
    if entry.logprob is None:
        return None
    named = {_token_text(top): top.logprob for top in (*entry.top, entry)}
    return {token: logprob for token, logprob in named.items() if logprob is not None}


def _encode_ids(delta: TextDelta) -> bytes:
    ids = b',"token_ids":' + _encode(delta.token_ids) if delta.token_ids else b""
    if delta.prompt_token_ids is None:
        return ids
    return ids + b',"prompt_token_ids":' + _encode(delta.prompt_token_ids)


def _token_text(entry: LogprobEntry) -> str:
    """Partial characters are written as OpenAI does, so that two of them are not one key. A token
    without text, or one named by its id, is called what it is."""
    if not entry.raw or entry.token.startswith("token_id:"):
        return entry.token
    try:
        return entry.raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in entry.raw)


def _chunk_start(head: AnswerHead) -> bytes:
    fields = {
        "id": head.id,
        "object": "text_completion",
        "created": head.created,
        "model": head.model,
        "system_fingerprint": head.system_fingerprint,
    }
    return b"data: " + _encode(fields)[:-1] + b',"choices":'
