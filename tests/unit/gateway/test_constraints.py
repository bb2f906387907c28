"""From response_format and structured_outputs to the constraint that is enforced."""

from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.schemas.chat_request import ChatCompletionRequest
from gateway.schemas.constraints import format_constraint, outputs_constraint
from gateway.validation import validate
from grammar.spec import ConstraintSpec


def fields(**parameters: Any) -> ChatCompletionRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **parameters}
    return validate(ChatCompletionRequest, body)


def wanted_format(value: Any) -> ConstraintSpec | None:
    response_format = fields(response_format=value).response_format
    assert response_format is not None
    return format_constraint(response_format, "llguidance")


def wanted_outputs(value: Any) -> ConstraintSpec:
    outputs = fields(structured_outputs=value).structured_outputs
    assert outputs is not None
    return outputs_constraint(outputs, "xgrammar")


def test_text_is_no_constraint() -> None:
    assert wanted_format({"type": "text"}) is None


def test_json_object_has_no_schema() -> None:
    spec = wanted_format({"type": "json_object"})
    assert spec == ConstraintSpec(kind="json_object", engine="llguidance")


def test_schema_keeps_the_clients_key_order() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    value = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    spec = wanted_format(value)
    assert spec is not None
    assert spec.value == '{"type":"object","properties":{"b":{},"a":{}}}'


@pytest.mark.parametrize(
    ("outputs", "kind", "value"),
    [
        ({"json": {"b": 1, "a": 2}}, "json_schema", '{"b":1,"a":2}'),
        ({"json": '{"b": 1}'}, "json_schema", '{"b": 1}'),
        ({"regex": "a+", "json": None}, "regex", "a+"),
        ({"regex": ""}, "regex", ""),
        ({"choice": ["b", "a"]}, "choice", '["b","a"]'),
    ],
)
def test_each_structured_output(outputs: Any, kind: str, value: str) -> None:
    spec = wanted_outputs(outputs)
    assert (spec.kind, spec.value, spec.engine) == (kind, value, "xgrammar")


@pytest.mark.parametrize(
    ("outputs", "param"),
    [
        ({}, "structured_outputs"),
        ({"json": "{"}, "structured_outputs.json"),
        ({"json": "[]"}, "structured_outputs.json"),
        ({"json": '{"items":' * 5000 + "{}" + "}" * 5000}, "structured_outputs.json"),
        ({"choice": []}, "structured_outputs.choice"),
        ({"choice": [1]}, "structured_outputs.choice[0]"),
        ({"regex": 5}, "structured_outputs.regex"),
        ({"grammar": "x"}, "structured_outputs.grammar"),
    ],
)
def test_wrong_structured_output_is_named(outputs: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        fields(structured_outputs=outputs)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "value",
    [
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": None},
        {"type": "json_schema", "json_schema": {}},
        {"type": "json_schema", "json_schema": {"schema": None}},
    ],
)
def test_schema_that_is_missing_is_a_missing_parameter(value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        fields(response_format=value)
    assert caught.value.code == "missing_required_parameter"
    assert caught.value.param == "response_format.json_schema"
