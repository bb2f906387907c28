"""The body of POST /v1/embeddings, which is read so that what is wrong with it is said first."""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema, field_validator

from gateway.generation import TextPrompt
from gateway.schemas.completion_request import PROMPT_SCHEMA, parse_prompts
from gateway.schemas.fields import WireModel, refusal

MAX_INPUTS = 2048


class EmbeddingsRequest(WireModel):
    """`input` has the shapes of a completion's prompt; nothing has no vector."""

    model: str
    input: Annotated[Any, WithJsonSchema(PROMPT_SCHEMA)]
    dimensions: int | None = Field(None, ge=1)
    encoding_format: Literal["float", "base64"] | None = None

    @field_validator("input")
    @classmethod
    def _parse_input(cls, value: Any) -> tuple[TextPrompt, ...]:
        inputs = parse_prompts(value, max_prompts=MAX_INPUTS)
        for index, one in enumerate(inputs):
            if one.text == "":
                place = {"param": f"[{index}]"} if isinstance(value, list) else {}
                raise refusal("empty_string", "it is an empty text", **place)
        return inputs
