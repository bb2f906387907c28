"""Tools in the text of a conversation, for templates that know nothing of them: what there is to
call, what was called, and what came back.
"""

import json
from collections.abc import Sequence
from typing import Any

from gateway.tools.dialect import Dialect

Message = dict[str, Any]


def tools_text(tools: Sequence[Message], dialect: Dialect) -> str:
    """Says which functions there are, and how to call them."""
    functions = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    example = dialect.block([("function_name", '{"parameter_name": "value"}')])
    return (
        "You can call functions. Here they are, one a line, each with a JSON Schema of its"
        f" parameters:\n<tools>\n{functions}\n</tools>\n\n"
        f"To call a function, end your answer with:\n{example}"
    )


def calls_text(calls: Sequence[Message], dialect: Dialect) -> str:
    """Calls of an earlier answer as the model wrote them."""
    functions = (call.get("function", {}) for call in calls)
    return dialect.block(
        [
            (str(function.get("name", "")), arguments_text(function.get("arguments", "")))
            for function in functions
        ]
    )


def arguments_text(arguments: Any) -> str:
    """As JSON; a client's own text stays as it is."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def result_text(content: str) -> str:
    """What a function gave back."""
    return f"<tool_response>\n{content}\n</tool_response>"
