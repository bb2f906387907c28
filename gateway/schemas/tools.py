"""The fields of a chat request that offer tools to the model.

Only their types and what can be said of each alone; what they ask for together is
gateway/tools/request.py.
"""

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, WithJsonSchema, model_validator

from gateway.schemas.caching import Controlled
from gateway.schemas.fields import TEXT_BRANCH, WireModel, refusal
from gateway.schemas.messages import OBJECT_BRANCH
from gateway.tools.request import (
    MAX_TOOLS,
    NAME_PATTERN,
    ChosenTools,
    FunctionTool,
    choose_tools,
    parse_choice,
)


class FunctionDefinition(WireModel):
    """`parameters` is a JSON Schema; without it the function takes none."""

    name: str = Field(pattern=NAME_PATTERN)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


# Checked by hand, as what else there is deserves an error of its own.
OnlyFunction = Annotated[str, WithJsonSchema({"const": "function"})]


class FunctionOnly(WireModel):
    """A tool; what else OpenAI has runs on its side, or has a grammar of its own."""

    type: OnlyFunction

    @model_validator(mode="before")
    @classmethod
    def _is_function(cls, value: Any) -> Any:
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(kind, str) and kind != "function":
            raise refusal("unsupported_value", "only function tools are supported", param="type")
        return value


class ToolDefinition(FunctionOnly, Controlled):
    """A tool as chat has it."""

    function: FunctionDefinition


def _choice_branch(value: Any) -> str:
    return TEXT_BRANCH if isinstance(value, str) else OBJECT_BRANCH


Choice = Annotated[
    Annotated[str, Tag(TEXT_BRANCH)] | Annotated[dict[str, Any], Tag(OBJECT_BRANCH)],
    Discriminator(_choice_branch),
]


class ToolFields(WireModel):
    """No tools at all and an empty list of them are the same."""

    tools: list[ToolDefinition] | None = Field(None, max_length=MAX_TOOLS, fail_fast=True)
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None


def chosen_tools(fields: ToolFields) -> ChosenTools:
    """What the request shows and allows.

    Raises: InvalidRequest naming the field in error.
    """
    functions = [
        FunctionTool(
            name=tool.function.name,
            description=tool.function.description,
            parameters=tool.function.parameters,
            strict=tool.function.strict,
            param=f"tools[{index}].function",
        )
        for index, tool in enumerate(fields.tools or ())
    ]
    choice = None if fields.tool_choice is None else parse_choice(fields.tool_choice)
    return choose_tools(functions, choice, parallel=fields.parallel_tool_calls)
