"""The body of POST /v1/completions."""

from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema, field_validator, model_validator

from gateway.errors import InvalidRequest
from gateway.generation import TextPrompt
from gateway.schemas.caching import CachingFields
from gateway.schemas.constraints import ConstraintFields
from gateway.schemas.fields import INT64_MAX, SamplingFields, refusal

MAX_LOGPROBS = 5
DEFAULT_MAX_TOKENS = 16
MAX_PROMPTS = 128
_IDS_SCHEMA = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
# What parse_prompts() takes, for the document of the API.
PROMPT_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        _IDS_SCHEMA,
        {"type": "array", "items": _IDS_SCHEMA, "minItems": 1},
    ]
}


class CompletionRequest(ConstraintFields, CachingFields, SamplingFields):
    """`prompt` null or absent is the empty text: the model starts from its first token."""

    prompt: Annotated[Any, WithJsonSchema(PROMPT_SCHEMA)] = None
    max_tokens: int | None = Field(None, ge=0, le=INT64_MAX)
    echo: bool | None = None
    suffix: str | None = None
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)

    @field_validator("logprobs", mode="before")
    @classmethod
    def _false_is_absent(cls, value: Any) -> Any:
        return None if value is False else value

    @field_validator("prompt")
    @classmethod
    def _parse_prompt(cls, value: Any) -> tuple[TextPrompt, ...]:
        return parse_prompts(value)

    @model_validator(mode="after")
    def _answers_something(self) -> "CompletionRequest":
        if self.max_tokens == 0 and not self.echo:
            raise refusal("integer_below_min_value", "0 is for echo only", param="max_tokens")
        if self.suffix and self.echo:
            raise refusal("invalid_value", "it does not go with a suffix", param="echo")
        return self

    @property
    def prompts(self) -> tuple[TextPrompt, ...]:
        """The parsed prompts, in the order of their choices.

        Raises: InvalidRequest for token ids before a suffix, which is a text.
        """
        given = self.prompt if self.prompt is not None else (TextPrompt(text=""),)
        adds_special = self.add_special_tokens is not False
        if not self.suffix:
            return tuple(replace(one, adds_special=adds_special) for one in given)
        if any(one.token_ids is not None for one in given):
            raise InvalidRequest(
                "Invalid value for 'suffix': the prompt before it must be a text.", param="suffix"
            )
        return tuple(replace(one, suffix=self.suffix) for one in given)


def parse_prompts(value: Any, *, max_prompts: int = MAX_PROMPTS) -> tuple[TextPrompt, ...]:
    """A text, a list of texts, token ids, or a list of token id lists.

    Raises: PydanticCustomError naming the element that is neither.
    """
    if value is None or isinstance(value, str):
        return (TextPrompt(text=value or ""),)
    if not isinstance(value, list):
        raise refusal("invalid_type", "it must be a text or a list of texts or token ids")
    if not value:
        raise refusal("empty_array", "it is an empty list")
    if isinstance(value[0], str | list) and len(value) > max_prompts:
        raise refusal("array_above_max_length", f"at most {max_prompts} of them go together")
    if isinstance(value[0], str):
        return tuple(TextPrompt(text=_text(item, index)) for index, item in enumerate(value))
    if isinstance(value[0], list):
        return tuple(
            TextPrompt(token_ids=_token_ids(item, f"[{index}]")) for index, item in enumerate(value)
        )
    return (TextPrompt(token_ids=_token_ids(value, "")),)


def _text(item: Any, index: int) -> str:
    if not isinstance(item, str):
        raise refusal("invalid_type", "it must be a text, as the first is", param=f"[{index}]")
    return item


def _token_ids(items: Any, path: str) -> tuple[int, ...]:
    if not isinstance(items, list):
        raise refusal("invalid_type", "it must be a list of token ids", param=path)
    if not items:
        raise refusal("empty_array", "it is an empty list", param=path)
    for index, item in enumerate(items):
        if not isinstance(item, int) or isinstance(item, bool):
            raise refusal("invalid_type", "it must be a token id", param=f"{path}[{index}]")
        if item < 0:
            raise refusal("integer_below_min_value", "it is negative", param=f"{path}[{index}]")
    return tuple(items)
