"""What the wire models share: strict base, union without noise in error paths, common fields."""

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
# Not OpenAI's 4, which users of other servers exceed; enough to bound the matcher's work.
MAX_STOP_STRINGS = 64
MAX_STOP_CHARS = 4096
MAX_STOP_TOKEN_IDS = 1024
# As many as a small vocabulary has tokens.
MAX_BIASES = 65_536
MAX_SALT_CHARS = 1024
MAX_BAD_WORDS = 1024
MAX_BAD_WORD_CHARS = 256
MAX_REQUEST_ID_CHARS = 128
# A smaller penalty multiplies a score beyond what float32 holds.
MIN_REPETITION_PENALTY = 0.01

MAX_METADATA = 16
MAX_METADATA_KEY_CHARS = 64
MAX_METADATA_VALUE_CHARS = 512

# A name in this form is a branch of a union, which error paths leave out.
BRANCH_OPEN = "<"
TEXT_BRANCH, LIST_BRANCH = "<text>", "<list>"


class WireModel(BaseModel):
    """Types are exact (a bool is no integer), NaN and infinity are refused, null is absent.

    Lists and dicts of a client are `fail_fast`: an error each for millions of wrong items would
    hold the interpreter, and with it the event loop, for most of a minute.
    """

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, frozen=True)


class ClosedModel(WireModel):
    """A part of a request in which an unknown key would be a constraint that is not enforced."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: inner for key, inner in value.items() if inner is not None}


def _short_keys(value: Any) -> Any:
    """Before the values, whose errors name their key."""
    if isinstance(value, dict) and any(len(key) > MAX_METADATA_KEY_CHARS for key in value):
        raise refusal("invalid_value", f"its keys have at most {MAX_METADATA_KEY_CHARS} characters")
    return value


Metadata = Annotated[
    dict[str, Annotated[str, Field(max_length=MAX_METADATA_VALUE_CHARS)]],
    Field(max_length=MAX_METADATA, fail_fast=True),
    BeforeValidator(_short_keys),
]


def text_or_list(value: Any) -> str:
    """Which branch of `str | list` a value is; what is neither is reported as no list."""
    return TEXT_BRANCH if isinstance(value, str) else LIST_BRANCH


def refusal(code: str, message: str, **context: Any) -> PydanticCustomError:
    """An error raised inside a validator; `code` goes to the wire as it is. `param` in the
    context names a field below the validated one."""
    return PydanticCustomError(code, message.replace("{", "{{").replace("}", "}}"), context or None)


Int64 = Annotated[int, Field(ge=INT64_MIN, le=INT64_MAX)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
BadWord = Annotated[str, Field(min_length=1, max_length=MAX_BAD_WORD_CHARS)]
# As an x-request-id header may be.
RequestId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:\-]+$", max_length=MAX_REQUEST_ID_CHARS)]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
StopStrings = Annotated[
    Annotated[StopString, Tag(TEXT_BRANCH)]
    | Annotated[
        list[StopString], Field(max_length=MAX_STOP_STRINGS, fail_fast=True), Tag(LIST_BRANCH)
    ],
    Discriminator(text_or_list),
]


class StreamOptions(WireModel):
    include_usage: bool | None = None


class SamplingFields(WireModel):
    """Parameters of both generation endpoints that say how tokens are chosen and where to end."""

    model: str
    max_tokens: int | None = Field(None, ge=1, le=INT64_MAX)
    n_predict: int | None = Field(None, ge=-1, le=INT64_MAX)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=INT64_MAX)
    min_p: float | None = Field(None, ge=0, le=1)
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: float | None = Field(None, ge=MIN_REPETITION_PENALTY, le=10)
    repeat_penalty: float | None = Field(None, ge=MIN_REPETITION_PENALTY, le=10)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(
        None, max_length=MAX_BIASES, fail_fast=True
    )
    seed: Int64 | None = None
    min_tokens: int | None = Field(None, ge=0, le=INT64_MAX)
    ignore_eos: bool | None = None
    stop: StopStrings | None = None
    stop_token_ids: list[Annotated[int, Field(ge=0)]] | None = Field(
        None, max_length=MAX_STOP_TOKEN_IDS, fail_fast=True
    )
    n: int | None = Field(None, ge=1, le=128)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    cache_salt: str | None = Field(None, min_length=1, max_length=MAX_SALT_CHARS)
    extra_key: str | None = Field(None, min_length=1, max_length=MAX_SALT_CHARS)
    service_tier: str | None = None
    allowed_token_ids: list[Annotated[int, Field(ge=0)]] | None = Field(
        None, min_length=1, max_length=MAX_BIASES, fail_fast=True
    )
    bad_words: list[BadWord] | None = Field(None, max_length=MAX_BAD_WORDS, fail_fast=True)
    truncate_prompt_tokens: int | None = Field(
        None, ge=-1, le=INT64_MAX, json_schema_extra={"not": {"const": 0}}
    )
    include_stop_str_in_output: bool | None = None
    no_stop_trim: bool | None = None
    skip_special_tokens: bool | None = None
    add_special_tokens: bool | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    cache_prompt: bool | None = None
    request_id: RequestId | None = None
    rid: RequestId | None = None

    @field_validator("truncate_prompt_tokens")
    @classmethod
    def _keeps_something(cls, value: int | None) -> int | None:
        if value == 0:
            raise refusal("invalid_value", "no token would be left; -1 keeps what fits")
        return value
