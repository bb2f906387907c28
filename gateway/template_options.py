"""The variables that a request gives to the model's chat template: chat_template_kwargs and what
reasoning_effort means in them. Called where a body is read."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.errors import InvalidRequest

# What the server itself says to a template, or what would be a program of the client's.
RESERVED = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "conversations",
        "messages",
        "tokenize",
        "tools",
    }
)
# A template may walk its variables any number of times.
MAX_OPTIONS_BYTES = 16_384
PARAM = "chat_template_kwargs"


def template_options(
    given: Mapping[str, Any] | None, *, reasoning_effort: str | None
) -> dict[str, Any]:
    """The variables; what chat_template_kwargs says of thinking wins over the effort.

    Raises: InvalidRequest for a name that the server keeps for itself, and for too many bytes.
    """
    options = dict(given or {})
    for name in options:
        if name in RESERVED:
            raise InvalidRequest(
                f"Invalid value for '{PARAM}': '{name}' cannot be set by a request.", param=PARAM
            )
    if len(msgspec.json.encode(options)) > MAX_OPTIONS_BYTES:
        raise InvalidRequest(
            f"Invalid value for '{PARAM}': it has more than {MAX_OPTIONS_BYTES} bytes as JSON.",
            param=PARAM,
        )
    if reasoning_effort is None:
        return options
    # Qwen3 and its like know on and off only.
    implied = {"reasoning_effort": reasoning_effort, "enable_thinking": reasoning_effort != "none"}
    return implied | options
