"""The body of POST /v1/responses."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from gateway.schemas.caching import CachingFields, Controlled
from gateway.schemas.chat_request import MAX_TOP_LOGPROBS
from gateway.schemas.constraints import ConstraintFields
from gateway.schemas.conversation import ReasoningEffort
from gateway.schemas.fields import (
    INT64_MAX,
    LIST_BRANCH,
    TEXT_BRANCH,
    ClosedModel,
    Metadata,
    SamplingFields,
    WireModel,
    refusal,
    text_or_list,
)
from gateway.schemas.responses_input import MAX_ID_CHARS, InputItem
from gateway.schemas.tools import Choice, FunctionOnly
from gateway.tools.request import (
    MAX_TOOLS,
    NAME_PATTERN,
    ChosenTools,
    FunctionTool,
    choose_tools,
    parse_choice,
)

MAX_INCLUDES = 32
LOGPROBS = "message.output_text.logprobs"

Input = Annotated[
    Annotated[str, Tag(TEXT_BRANCH)]
    | Annotated[list[InputItem], Field(fail_fast=True), Tag(LIST_BRANCH)],
    Discriminator(text_or_list),
]


class FlatTool(FunctionOnly, Controlled):
    """A function, its parts beside `type` and not below it as in chat."""

    name: str = Field(pattern=NAME_PATTERN)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class TextFormat(ClosedModel):
    """The form of the answer. `strict` false is enforced as well: the answer then fits more than
    was asked for."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None

    @model_validator(mode="after")
    def _parts_when_due(self) -> "TextFormat":
        for name, value in (("name", self.name), ("schema", self.schema_)):
            if self.type == "json_schema" and value is None:
                raise refusal("missing_required_parameter", "it is missing", param=name)
            if self.type != "json_schema" and value is not None:
                raise refusal("invalid_value", f"it does not go with type {self.type}", param=name)
        return self


class TextConfig(WireModel):
    format: TextFormat | None = None


class ReasoningConfig(WireModel):
    effort: ReasoningEffort | None = None


class ResponsesRequest(ConstraintFields, CachingFields, SamplingFields):
    """Sampling and constraints under the names of other servers are as in chat."""

    input: Input
    instructions: str | None = None
    max_output_tokens: int | None = Field(None, ge=1, le=INT64_MAX)
    tools: list[FlatTool] | None = Field(None, max_length=MAX_TOOLS, fail_fast=True)
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    include: list[str] | None = Field(None, max_length=MAX_INCLUDES, fail_fast=True)
    top_logprobs: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)
    truncation: Literal["auto", "disabled"] | None = None
    store: bool | None = None
    previous_response_id: str | None = Field(None, min_length=1, max_length=MAX_ID_CHARS)
    metadata: Metadata | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _logprobs_for_top(self) -> "ResponsesRequest":
        if self.top_logprobs and not self.wants_logprobs:
            raise refusal(
                "invalid_value", f"it needs include: [{LOGPROBS!r}]", param="top_logprobs"
            )
        return self

    @model_validator(mode="after")
    def _says_something(self) -> "ResponsesRequest":
        if self.input == [] and self.previous_response_id is None:
            raise refusal("empty_array", "it needs an item", param="input")
        return self

    @property
    def wants_logprobs(self) -> bool:
        return LOGPROBS in (self.include or ())

    @property
    def ignored_includes(self) -> tuple[str, ...]:
        """What was asked for and is not part of answers here, as the header names it."""
        return tuple(f"include.{name}" for name in self.include or () if name != LOGPROBS)


def chosen_tools(fields: ResponsesRequest) -> ChosenTools:
    """What the request shows and allows.

    Raises: InvalidRequest naming the field in error.
    """
    functions = [
        FunctionTool(
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters,
            strict=tool.strict,
            param=f"tools[{index}]",
        )
        for index, tool in enumerate(fields.tools or ())
    ]
    choice = None if fields.tool_choice is None else parse_choice(fields.tool_choice)
    return choose_tools(functions, choice, parallel=fields.parallel_tool_calls)
