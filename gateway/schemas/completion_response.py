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
    """The legacy shape. `text_offset` counts characters from the start of the choice's text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True):
    """`reasoning_content` is ours: what came before a constrained text."""

    text: str
    index: int
    logprobs: CompletionLogprobs | None
    finish_reason: str
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET


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
        thought = self._chunk(delta.choice, "", reasoning=_encode(delta.reasoning))
        return thought + self._text(delta)

    def _text(self, delta: TextDelta) -> bytes:
        logprobs = b"null"
        if self._head.has_logprobs and delta.logprobs:
            offsets = self._offsets[delta.choice]
            logprobs = _encode(completion_logprobs(delta.logprobs, offsets))
        elif not delta.text:
            return b""
        return self._chunk(delta.choice, delta.text, logprobs=logprobs)

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
        )

    def _chunk(
        self,
        index: int,
        text: str,
        *,
        logprobs: bytes = b"null",
        finish_reason: bytes = b"null",
        reasoning: bytes | None = None,
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
                b"" if reasoning is None else b',"reasoning_content":' + reasoning,
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
        top_logprobs=[
            {_token_text(top): top.logprob for top in (*entry.top, entry)} for entry in entries
        ],
        text_offset=[offsets.advance(entry.raw) for entry in entries],
    )


def _token_text(entry: LogprobEntry) -> str:
    """Partial characters are written as OpenAI does, so that two of them are not one key."""
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
