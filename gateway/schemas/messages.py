"""Messages of a chat request: every role and content shape of the API, text only."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, WithJsonSchema, model_validator
from pydantic.config import JsonDict, JsonValue

from gateway.schemas.caching import Controlled, ControlledPart
from gateway.schemas.fields import LIST_BRANCH, TEXT_BRANCH, WireModel, refusal, text_or_list

OBJECT_BRANCH = "<object>"
Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class ContentPart(ControlledPart):
    """A piece of text; `refusal` is one that an assistant message of an earlier turn may hold."""

    type: Literal["text", "refusal"]
    text: str | None = None
    refusal: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(kind, str) and kind not in ("text", "refusal"):
            raise refusal(
                "unsupported_value", f"{kind!r} parts are not supported, only text is", param="type"
            )
        if isinstance(kind, str) and not isinstance(value.get(kind), str):
            raise refusal("missing_required_parameter", f"'{kind}' must be a text", param=kind)
        return value


Content = Annotated[
    Annotated[str, Tag(TEXT_BRANCH)]
    | Annotated[list[ContentPart], Field(min_length=1, fail_fast=True), Tag(LIST_BRANCH)],
    Discriminator(text_or_list),
]


def _arguments_branch(value: Any) -> str:
    return OBJECT_BRANCH if isinstance(value, dict) else TEXT_BRANCH


Arguments = Annotated[
    Annotated[str, Tag(TEXT_BRANCH)] | Annotated[dict[str, Any], Tag(OBJECT_BRANCH)],
    Discriminator(_arguments_branch),
]


class FunctionCall(WireModel):
    """`arguments` is JSON text, or what a model wrote that should have been; an object is taken
    as well, as some clients replay it so, and null for none."""

    name: str
    arguments: Arguments | None = ""


class ToolCall(WireModel):
    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


def _with_role(roles: list[JsonValue], **needed: JsonDict) -> JsonDict:
    """A branch of the document's schema: messages of these roles, and what they must have."""
    properties: JsonDict = {"role": {"enum": roles}, **needed}
    return {"properties": properties, "required": [*needed]}


_WHOLE_MESSAGES: list[JsonValue] = [
    _with_role(["system", "developer", "user"], content={"not": {"type": "null"}}),
    _with_role(["tool"], tool_call_id={"type": "string"}),
    _with_role(["assistant", "function"]),
]


class Message(Controlled):
    """One message. Unknown keys are left out; null counts as absent."""

    model_config = ConfigDict(json_schema_extra={"anyOf": _WHOLE_MESSAGES})

    role: Role
    content: Content | None = None
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = Field(None, fail_fast=True)
    tool_call_id: str | None = None
    function_call: FunctionCall | None = None
    audio: Annotated[Any, WithJsonSchema({"type": "null"})] = None

    @model_validator(mode="after")
    def _is_whole(self) -> "Message":
        if self.audio is not None:
            raise refusal("unsupported_value", "audio is not supported", param="audio")
        if self.role == "tool" and self.tool_call_id is None:
            raise refusal(
                "missing_required_parameter", "a tool message needs it", param="tool_call_id"
            )
        if self.content is None and not self._may_be_empty():
            raise refusal(
                "missing_required_parameter", f"a {self.role} message needs it", param="content"
            )
        return self

    def _may_be_empty(self) -> bool:
        """Whether there is something else, or nothing is a meaningful result of a function."""
        if self.role != "assistant":
            return self.role in ("tool", "function")
        said = (self.refusal, self.reasoning_content, self.function_call)
        return bool(self.tool_calls) or any(part is not None for part in said)

    def as_dict(self) -> dict[str, Any]:
        """The wire's shape without what is absent, or is for the cache: for the template."""
        return self.model_dump(exclude_none=True)
