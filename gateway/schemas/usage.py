"""The usage object of answers."""

import msgspec

from gateway.generation import Usage


class PromptTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int
    cache_write_tokens: int
    audio_tokens: int = 0


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    """`retried_tokens` is ours: generated for a checked answer, thrown away, in no other count."""

    reasoning_tokens: int = 0
    audio_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0
    retried_tokens: int | msgspec.UnsetType = msgspec.UNSET


class UsageBody(msgspec.Struct, frozen=True):
    """What was found in the cache and what was left there is always said, 0 where it is nothing."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails = CompletionTokensDetails()

    @classmethod
    def of(cls, usage: Usage) -> "UsageBody":
        return cls(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            total_tokens=usage.prompt_tokens + usage.completion_tokens,
            prompt_tokens_details=PromptTokensDetails(
                cached_tokens=usage.cached_tokens, cache_write_tokens=usage.written_tokens
            ),
            completion_tokens_details=CompletionTokensDetails(
                reasoning_tokens=usage.reasoning_tokens,
                retried_tokens=usage.retried_tokens or msgspec.UNSET,
            ),
        )
