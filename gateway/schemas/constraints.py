"""response_format and structured_outputs: what a request may demand of its answer's form."""

from typing import Any, Literal

import msgspec
from pydantic import Field, model_validator

from gateway.schemas.fields import ClosedModel, refusal
from grammar.spec import ConstraintSpec, EngineChoice

MAX_CHOICES = 10_000


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
    """OpenAI's way to ask for JSON."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _schema_when_due(self) -> "ResponseFormat":
        if self.type == "json_schema" and self.json_schema is None:
            raise refusal("missing_required_parameter", "it is missing", param="json_schema")
        if self.type != "json_schema" and self.json_schema is not None:
            raise refusal(
                "invalid_value", f"it does not go with type {self.type}", param="json_schema"
            )
        return self


class StructuredOutputs(ClosedModel):
    """Exactly one of its keys. `json` is a schema, as an object or as JSON text."""

    json_: dict[str, Any] | str | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = Field(None, min_length=1, max_length=MAX_CHOICES, fail_fast=True)

    @model_validator(mode="after")
    def _has_one(self) -> "StructuredOutputs":
        given = [v for v in (self.json_, self.regex, self.choice) if v is not None]
        if len(given) != 1:
            raise refusal("invalid_value", "exactly one of json, regex and choice must be given")
        return self

    @model_validator(mode="after")
    def _json_is_schema(self) -> "StructuredOutputs":
        if isinstance(self.json_, str):
            try:
                schema = msgspec.json.decode(self.json_)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                raise refusal(
                    "invalid_json_schema", f"it is not JSON: {error}", param="json"
                ) from None
            if not isinstance(schema, dict):
                raise refusal("invalid_json_schema", "it is no JSON object", param="json")
        return self


def format_constraint(wanted: ResponseFormat, engine: EngineChoice) -> ConstraintSpec | None:
    """None for plain text. The schema keeps the client's key order."""
    if wanted.json_schema is not None:
        schema = _json_text(wanted.json_schema.schema_)
        return ConstraintSpec(kind="json_schema", value=schema, engine=engine)
    if wanted.type == "json_object":
        return ConstraintSpec(kind="json_object", engine=engine)
    return None


def outputs_constraint(outputs: StructuredOutputs, engine: EngineChoice) -> ConstraintSpec:
    if outputs.regex is not None:
        return ConstraintSpec(kind="regex", value=outputs.regex, engine=engine)
    if outputs.choice is not None:
        return ConstraintSpec(kind="choice", value=_json_text(outputs.choice), engine=engine)
    schema = outputs.json_ if isinstance(outputs.json_, str) else _json_text(outputs.json_)
    return ConstraintSpec(kind="json_schema", value=schema, engine=engine)


def _json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()
