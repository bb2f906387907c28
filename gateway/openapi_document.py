"""The OpenAPI document, made of what the server checks requests with: the wire models, the table of
parameters and the errors. It knows no endpoint by name; these are gateway/api_operations.py.
"""

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from gateway.api_operations import OPERATIONS, Operation, Schema
from gateway.errors import GatewayError
from gateway.middleware import IGNORED_HEADER
from gateway.parameter_table import PARAMETERS, Action, Endpoint, Parameter
from gateway.request_context import REQUEST_ID_HEADER

_REF = "#/components/schemas/{}"
# What a request with a body cannot end in, and what one without can.
_NEVER_WITH_BODY = frozenset({HTTPStatus.METHOD_NOT_ALLOWED})
_WITHOUT_BODY = frozenset({400, 401, 403, 404, 429, 500, 503})
_ERROR_SCHEMA: Schema = {
    "type": "object",
    "required": ["error"],
    "additionalProperties": False,
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "additionalProperties": False,
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def openapi_document(
    *, version: str, needs_key: bool, is_strict: bool, root_path: str = ""
) -> dict[str, Any]:
    """The whole document. `is_strict` says that unknown parameters are refused."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(
            operation, needs_key=needs_key
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "radixgate",
            "version": version,
            "description": "OpenAI's API over a model with a radix prefix cache. Parameters that"
            f" have no effect are accepted and named in the header {IGNORED_HEADER}.",
        },
        "servers": [{"url": root_path or "/"}],
        "paths": paths,
        "components": {
            "schemas": {
                "Error": _ERROR_SCHEMA,
                **_answer_schemas(),
                **_request_schemas(is_strict=is_strict),
            },
            "responses": {
                f"Error{status}": _error_response(status) for status in sorted(_statuses())
            },
            "headers": {
                "RequestId": {
                    "description": f"The request's {REQUEST_ID_HEADER}, or one that was made.",
                    "required": True,
                    "schema": {"type": "string"},
                }
            },
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation, *, needs_key: bool) -> dict[str, Any]:
    described: dict[str, Any] = {"summary": operation.summary, "responses": _responses(operation)}
    described["operationId"] = operation.method + re.sub(r"\W+", "_", operation.path).rstrip("_")
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]
    parameters += [
        {"name": name, "in": "query", "schema": schema} for name, schema in operation.query.items()
    ]
    if parameters:
        described["parameters"] = parameters
    if operation.request is not None:
        schema = _any_of(operation.request, *operation.other_requests)
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    if needs_key and operation.needs_key:
        described["security"] = [{"bearer": []}]
    return described


def _responses(operation: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    if operation.answer is not None:
        responses["200"] = {
            "description": "The answer",
            "headers": _headers(),
            "content": _answer_content(operation),
        }
    statuses = _statuses() - _NEVER_WITH_BODY
    if operation.request is None:
        statuses &= _WITHOUT_BODY if operation.needs_key else {500, 503}
    return responses | {
        str(status): {"$ref": f"#/components/responses/Error{status}"}
        for status in sorted(statuses)
    }


def _answer_content(operation: Operation) -> dict[str, Any]:
    if isinstance(operation.answer, str):
        return {operation.answer: {"schema": {} if "json" in operation.answer else _TEXT}}
    assert operation.answer is not None
    schema = _any_of(operation.answer, *operation.other_answers)
    content = {"application/json": {"schema": schema}}
    if operation.streams:
        content["text/event-stream"] = {"schema": _TEXT}
    return content


_TEXT: Schema = {"type": "string"}


def _any_of(*kinds: type) -> Schema:
    references: list[Schema] = [{"$ref": _REF.format(kind.__name__)} for kind in kinds]
    return references[0] if len(references) == 1 else {"anyOf": references}


def _headers() -> dict[str, Any]:
    return {REQUEST_ID_HEADER: {"$ref": "#/components/headers/RequestId"}}


def _error_response(status: int) -> dict[str, Any]:
    codes = {kind.default_code for kind in _kinds(GatewayError) if kind.status == status}
    named = ", ".join(sorted(code for code in codes if code is not None))
    return {
        "description": f"{HTTPStatus(status).phrase} ({named} and more exact codes)",
        "headers": _headers(),
        "content": {"application/json": {"schema": {"$ref": _REF.format("Error")}}},
    }


def _statuses() -> frozenset[int]:
    return frozenset(kind.status for kind in _kinds(GatewayError))


def _kinds(base: type[GatewayError]) -> Iterable[type[GatewayError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


def _answer_schemas() -> dict[str, Schema]:
    answers = {op.answer for op in OPERATIONS if isinstance(op.answer, type)}
    answers.update(other for op in OPERATIONS for other in op.other_answers)
    ordered = sorted(answers, key=lambda answer: answer.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template=_REF.format("{name}"))
    return schemas


class _PlainSchemas(GenerateJsonSchema):
    """Without the titles that repeat names, and without null as the default of what is optional."""

    def field_title_should_be_set(self, _schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        plain = super().default_schema(schema)
        if plain.get("default", ...) is None:
            del plain["default"]
        return plain


def _request_schemas(*, is_strict: bool) -> dict[str, Schema]:
    rules = {op.request: op.endpoint for op in OPERATIONS if op.request is not None}
    _, definitions = models_json_schema(
        [(model, "validation") for model in rules],
        ref_template=_REF.format("{model}"),
        schema_generator=_PlainSchemas,
    )
    schemas: dict[str, Schema] = definitions["$defs"]
    for model, endpoint in rules.items():
        if endpoint is not None:
            _apply_table(schemas[model.__name__], endpoint, is_strict=is_strict)
    return schemas


def _apply_table(schema: Schema, endpoint: Endpoint, *, is_strict: bool) -> None:
    """What becomes of each name: the table refuses some that the model would read, and knows others
    that it does not."""
    properties: dict[str, Schema] = schema["properties"]
    rows = [row for row in PARAMETERS if endpoint in row.endpoints]
    for row in sorted(rows, key=lambda row: row.is_pattern):  # they cover what the others do not
        if row.is_nested:
            _mention(properties[row.path[0]], row)
        elif row.is_pattern:
            patterns: dict[str, Schema] = schema.setdefault("patternProperties", {})
            patterns[_pattern(row, properties)] = _property(row, {})
        else:
            properties[row.name] = _property(row, properties.get(row.name, {}))
    schema["additionalProperties"] = {"type": "null"} if is_strict else True


def _pattern(row: Parameter, properties: Iterable[str]) -> str:
    """Names that the row covers; those with rows of their own are none of them."""
    prefix = re.escape(row.name[:-1])
    own = [re.escape(name.removeprefix(row.name[:-1])) for name in properties if row.matches(name)]
    return f"^{prefix}(?!(?:{'|'.join(own)})$)" if own else f"^{prefix}"


def _mention(parent: Schema, row: Parameter) -> None:
    """What becomes of a name inside an object, which the object's own schema does not say."""
    if row.action is not Action.IMPLEMENTED:
        effect = "no effect" if row.action is Action.IGNORED else "not supported"
        told = f"{'.'.join(row.path[1:])}: {effect}. {row.reason}"
        parent["description"] = " ".join(filter(None, (parent.get("description"), told)))


def _property(row: Parameter, known: Mapping[str, Any]) -> Schema:
    if row.action is Action.IMPLEMENTED:
        return dict(known)
    if row.action is Action.IGNORED:
        return {**known, "description": f"Without effect. {row.reason}"}
    described: Schema = {"description": f"Not supported. {row.reason}"}
    if row.harmless_like is not None:
        return {**described, "type": ["integer", "null"]}
    return {**described, "enum": [None, *row.harmless]}
