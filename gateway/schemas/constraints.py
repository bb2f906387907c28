"""The fields in which a request says what form its answer must have, ours and other servers'.

Only their types and what can be said of each alone; what they ask for together is
gateway/constraint_request.py.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from gateway.json_text import JsonTextError, decode_json
from gateway.schemas.fields import ClosedModel, WireModel, refusal

MAX_CHOICES = 10_000
MAX_WHITESPACE_PATTERN_CHARS = 256


def _json_object(value: dict[str, Any] | str) -> dict[str, Any] | str:
    """Raises: PydanticCustomError for a text that is no JSON object."""
    if isinstance(value, str):
        try:
            decoded = decode_json(value.encode())
        except JsonTextError as error:
            raise refusal("invalid_json_schema", f"as JSON it {error}") from None
        if not isinstance(decoded, dict):
            raise refusal("invalid_json_schema", "it is no JSON object")
    return value


# As an object or as its JSON text.
JsonObject = Annotated[dict[str, Any] | str, AfterValidator(_json_object)]
Choices = Annotated[list[str], Field(min_length=1, max_length=MAX_CHOICES, fail_fast=True)]
WhitespacePattern = Annotated[str, Field(max_length=MAX_WHITESPACE_PATTERN_CHARS)]


class JsonSchema(ClosedModel):
    """`strict` false is enforced as well: the answer then fits more than was asked for."""

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _has_schema(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("schema") is None:
            raise refusal(
                "missing_required_parameter", "'schema' is missing in response_format.json_schema"
            )
        return value


class ResponseFormat(ClosedModel):
    """OpenAI's way to ask for JSON, and the structural tags of vLLM and SGLang."""

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchema | None = None
    structures: list[dict[str, Any]] | None = Field(None, min_length=1, fail_fast=True)
    triggers: list[str] | None = Field(None, min_length=1, fail_fast=True)

    @model_validator(mode="after")
    def _parts_when_due(self) -> "ResponseFormat":
        parts = {"json_schema": "json_schema", "structures": "structural_tag"}
        for name, kind in (parts | {"triggers": "structural_tag"}).items():
            is_given = getattr(self, name) is not None
            if self.type == kind and not is_given:
                raise refusal("missing_required_parameter", "it is missing", param=name)
            if self.type != kind and is_given:
                raise refusal("invalid_value", f"it does not go with type {self.type}", param=name)
        return self


class StructuredOutputs(ClosedModel):
    """Exactly one of the first six, false being absent; the others say how."""

    json_: JsonObject | None = Field(None, alias="json")
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: JsonObject | None = None
    whitespace_pattern: WhitespacePattern | None = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None
    backend: str | None = None
    allow_checked: bool | None = None

    @model_validator(mode="after")
    def _has_one(self) -> "StructuredOutputs":
        given = (self.json_, self.regex, self.choice, self.grammar, self.structural_tag)
        if sum(value is not None for value in given) + bool(self.json_object) != 1:
            raise refusal(
                "invalid_value",
                "exactly one of json, regex, choice, grammar, json_object and structural_tag must"
                " be given",
            )
        return self


class ConstraintFields(WireModel):
    """All of them, of both generation endpoints. The guided_ names are vLLM's older ones; regex,
    ebnf and json_schema as a text are SGLang's; grammar and json_schema as an object llama.cpp's.
    """

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: JsonObject | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = None
    guided_decoding_backend: str | None = None
    guided_whitespace_pattern: WhitespacePattern | None = None
    regex: str | None = None
    ebnf: str | None = None
    json_schema: JsonObject | None = None
    grammar: str | None = None
    allow_checked: bool | None = None
