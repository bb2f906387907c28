"""The body of POST /v1/chat/completions."""

from pydantic import Field, model_validator

from gateway.schemas.caching import CachingFields
from gateway.schemas.constraints import ConstraintFields
from gateway.schemas.conversation import ConversationFields
from gateway.schemas.fields import INT64_MAX, Metadata, SamplingFields, refusal
from gateway.schemas.messages import Message

MAX_TOP_LOGPROBS = 20


class ChatCompletionRequest(ConversationFields, ConstraintFields, CachingFields, SamplingFields):
    """`max_completion_tokens` wins over `max_tokens`, and that over `n_predict`."""

    messages: list[Message] = Field(min_length=1, fail_fast=True)
    max_completion_tokens: int | None = Field(None, ge=1, le=INT64_MAX)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)
    modalities: list[str] | None = Field(None, fail_fast=True)
    metadata: Metadata | None = None
    include_reasoning: bool | None = None
    separate_reasoning: bool | None = None

    @model_validator(mode="after")
    def _logprobs_for_top(self) -> "ChatCompletionRequest":
        if self.top_logprobs and not self.logprobs:
            raise refusal("invalid_value", "it needs logprobs: true", param="top_logprobs")
        return self

    @model_validator(mode="after")
    def _text_only(self) -> "ChatCompletionRequest":
        if self.modalities is not None and set(self.modalities) != {"text"}:
            raise refusal("unsupported_value", 'only ["text"] is supported', param="modalities")
        return self
