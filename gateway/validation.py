"""From the bytes of a body to a validated wire model, and from pydantic's errors to OpenAI's."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.datastructures import Headers

from gateway.errors import InvalidRequest, UnsupportedMediaType
from gateway.schemas.fields import BRANCH_OPEN

# Far more than any message or schema needs, far less than what exhausts the stack of whatever
# walks the value later.
MAX_DEPTH = 128
# Far more than any request has. Decoding holds the interpreter, and with it the event loop: 20 ms
# for this many, a second for 8 MB of nothing else.
MAX_PARTS = 100_000
# All that counts parts, and the quotes that tell them from text.
_MARKS = b'[{:"'
_NO_MARKS = bytes(byte for byte in range(256) if byte not in _MARKS)

Model = TypeVar("Model", bound=BaseModel)

_CODES = {
    "missing": "missing_required_parameter",
    "extra_forbidden": "unsupported_parameter",
    "too_short": "empty_array",
    "too_long": "array_above_max_length",
    "string_too_short": "empty_string",
    "string_too_long": "string_above_max_length",
    "int_type": "invalid_type",
    "int_from_float": "invalid_type",
    "float_type": "invalid_type",
    "string_type": "invalid_type",
    "bool_type": "invalid_type",
    "list_type": "invalid_type",
    "dict_type": "invalid_type",
    "model_type": "invalid_type",
    "model_attributes_type": "invalid_type",
}
_BOUNDS = {
    "greater_than": "below_min_value",
    "greater_than_equal": "below_min_value",
    "less_than": "above_max_value",
    "less_than_equal": "above_max_value",
}
# Errors made by our own validators carry a code of the wire as their type.
_OWN_CODES = frozenset(
    {
        "missing_required_parameter",
        "invalid_value",
        "invalid_type",
        "unsupported_value",
        "empty_array",
        "array_above_max_length",
        "invalid_json_schema",
        "integer_below_min_value",
    }
)


def check_content_type(headers: Headers) -> None:
    """JSON only: a browser can send any other type to a server without asking it first.

    Raises: UnsupportedMediaType.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (
        kind.startswith("application/") and kind.endswith("+json")
    ):
        raise UnsupportedMediaType(
            f"The content type is {kind!r}; send the header Content-Type: application/json"
        )
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("Compressed request bodies are not supported.")


def decode_object(body: bytes) -> dict[str, Any]:
    """A JSON object; of a key that comes twice the last value counts.

    Raises: InvalidRequest.
    """
    if _has_too_many_parts(body):
        raise InvalidRequest(
            f"The JSON body of your request has more than {MAX_PARTS} lists, objects and keys.",
            code="invalid_json",
        )
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, ValueError) as error:
        raise InvalidRequest(
            f"We could not parse the JSON body of your request: {error}", code="invalid_json"
        ) from None
    if _is_too_deep(value, body):
        raise _too_deep()
    if not isinstance(value, dict):
        raise InvalidRequest(
            "The JSON body of your request must be an object.", code="invalid_type"
        )
    return value


def _has_too_many_parts(body: bytes) -> bool:
    """Lists, objects and keys; brackets and colons in a text, as a prompt of code has, are none."""
    if sum(map(body.count, (b"[", b"{", b":"))) <= MAX_PARTS:
        return False
    marks = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, delete=_NO_MARKS)
    # Two quotes in a row are a text without marks, or two texts with none between them: without
    # such pairs there is no object here for each text of the body.
    outside = marks.replace(b'""', b"").split(b'"')[::2]
    return len(b"".join(outside)) > MAX_PARTS


def _is_too_deep(value: Any, body: bytes) -> bool:
    # A long list of token ids has few brackets and need not be walked.
    if body.count(b"{") + body.count(b"[") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _containers(outer)]
        if not level:
            return False
    return True


def _containers(value: Any) -> list[Any]:
    inside = value.values() if isinstance(value, dict) else value
    return [item for item in inside if isinstance(item, dict | list)]


def validate(model: type[Model], body: dict[str, Any]) -> Model:
    """Raises: InvalidRequest that names the first field in error."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        raise to_wire_error(details[0]) from None


def _too_deep() -> InvalidRequest:
    return InvalidRequest(
        "The JSON body of your request is nested too deeply.", code="invalid_json"
    )


def to_wire_error(problem: ErrorDetails) -> InvalidRequest:
    """One of pydantic's errors as OpenAI's, without the client's value."""
    path = [*problem["loc"]]
    below = problem.get("ctx", {}).get("param")
    if below is not None:
        path.append(below)
    param = param_path(path)
    message = problem["msg"][:1].lower() + problem["msg"][1:]
    where = f"'{param}'" if param else "the request"
    if problem["type"] == "missing":
        return InvalidRequest(
            f"Missing required parameter: {where}.", code=_CODES["missing"], param=param
        )
    return InvalidRequest(
        f"Invalid value for {where}: {message}.", code=_code(problem), param=param
    )


def param_path(path: Sequence[str | int]) -> str | None:
    """Pydantic's location as clients write it: messages[0].content."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.startswith(BRANCH_OPEN):
            continue
        elif step.startswith("[") or not text:
            text += step
        else:
            text += f".{step}"
    return text or None


def _code(problem: ErrorDetails) -> str:
    kind = problem["type"]
    if kind in _OWN_CODES:
        return kind
    if kind in _BOUNDS:
        limit = next(iter(problem["ctx"].values()))
        return f"{'integer' if isinstance(limit, int) else 'decimal'}_{_BOUNDS[kind]}"
    return _CODES.get(kind, "invalid_value")
