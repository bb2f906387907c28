"""From the bytes of a body to a validated wire model, and from pydantic's errors to OpenAI's."""

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.datastructures import Headers

from gateway.errors import InvalidRequest, UnsupportedMediaType
from gateway.json_text import JsonTextError, decode_json
from gateway.schemas.fields import BRANCH_OPEN

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
# Pydantic's own name a class of ours, or types of Python.
_MESSAGES = dict.fromkeys(
    ("model_type", "model_attributes_type", "dict_type"), "it must be an object"
)
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
        "empty_string",
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
    """Raises: InvalidRequest."""
    try:
        value = decode_json(body)
    except JsonTextError as error:
        raise InvalidRequest(
            f"The JSON body of your request {error}.", code="invalid_json"
        ) from None
    if not isinstance(value, dict):
        raise InvalidRequest(
            "The JSON body of your request must be an object.", code="invalid_type"
        )
    return value


def validate(model: type[Model], body: dict[str, Any]) -> Model:
    """Raises: InvalidRequest that names the first field in error."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        raise to_wire_error(details[0]) from None


def to_wire_error(problem: ErrorDetails) -> InvalidRequest:
    """One of pydantic's errors as OpenAI's, without the client's value."""
    path = [*problem["loc"]]
    below = problem.get("ctx", {}).get("param")
    if below is not None:
        path.append(below)
    param = param_path(path)
    message = _MESSAGES.get(problem["type"], problem["msg"])
    message = message[:1].lower() + message[1:]
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
