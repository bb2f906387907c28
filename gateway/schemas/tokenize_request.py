"""The bodies of POST /tokenize and /detokenize: vLLM's shapes, and llama.cpp's names for them."""

from typing import Annotated

from pydantic import Field, model_validator

from gateway.prompt_encoding import MAX_COUNTED_CHARS
from gateway.schemas.conversation import ConversationFields
from gateway.schemas.fields import WireModel, refusal
from gateway.schemas.messages import Message

MAX_TOKENS = 1_000_000

_Text = Annotated[str, Field(max_length=MAX_COUNTED_CHARS)]


class TokenizeRequest(ConversationFields):
    """One text (`prompt`, or `content` as llama.cpp calls it) or one conversation. Without `model`
    it is the first that is served."""

    model: str | None = None
    prompt: _Text | None = None
    content: _Text | None = None
    messages: list[Message] | None = Field(None, min_length=1, fail_fast=True)
    add_special_tokens: bool | None = None
    add_special: bool | None = None
    return_token_strs: bool | None = None

    @model_validator(mode="after")
    def _has_one_text(self) -> "TokenizeRequest":
        given = [value is not None for value in (self.prompt, self.content, self.messages)]
        if not any(given):
            raise refusal(
                "missing_required_parameter", "prompt or messages must be given", param="prompt"
            )
        if sum(given) > 1:
            raise refusal(
                "invalid_value", "only one of prompt, content and messages can be given",
                param="content" if self.messages is None else "messages",
            )  # fmt: skip
        return self

    @property
    def adds_special(self) -> bool:
        """A text begins as a document does, unless it is llama.cpp's; a template writes its own
        start."""
        if self.add_special_tokens is not None:
            return self.add_special_tokens
        return self.prompt is not None if self.add_special is None else self.add_special


class DetokenizeRequest(WireModel):
    """`tokens` are ids of the model."""

    model: str | None = None
    tokens: list[int] = Field(max_length=MAX_TOKENS, fail_fast=True)
