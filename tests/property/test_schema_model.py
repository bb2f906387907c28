"""The canonical form of a schema allows what the schema allows, keyword by keyword and combined:
held against jsonschema on values of the same few names and numbers."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator

from grammar.errors import UnsupportedConstraint
from grammar.schema.compiler import CompiledSchema, compile_schema
from tests.property.keyword_schemas import recursive_schemas, schemas, values

SETTINGS = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


def validator_of(schema: Any) -> Validator:
    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)


def compiled(schema: Any) -> CompiledSchema | None:
    """None where the schema is refused, which has to be because nothing satisfies it."""
    try:
        return compile_schema(json.dumps(schema))
    except UnsupportedConstraint as error:
        reason = error.reason
    assume("itself without a property" not in reason)  # jsonschema would not end either
    assert "no finite value" in reason
    return None


def assert_agrees(schema: Any, value: Any) -> None:
    model = compiled(schema)
    is_valid = validator_of(schema).is_valid(value)
    if model is None:
        assert not is_valid
    elif is_valid or not model.gaps:
        assert model.allows(value) == is_valid


@SETTINGS
@given(schema=schemas, value=values)
def test_the_model_allows_what_the_schema_allows(schema: Any, value: Any) -> None:
    assert_agrees(schema, value)


@SETTINGS
@given(schema=recursive_schemas(), value=values)
def test_recursive_schemas_allow_the_same(schema: Any, value: Any) -> None:
    assert_agrees(schema, value)


@SETTINGS
@given(schema=schemas, value=values)
def test_a_schema_and_its_complement_share_nothing_and_leave_nothing_out(
    schema: Any, value: Any
) -> None:
    both = [compiled(schema), compiled({"not": schema})]
    if any(model is not None and model.gaps for model in both):
        assert any(model is not None and model.allows(value) for model in both)
    else:
        assert [model is not None and model.allows(value) for model in both].count(True) == 1


@pytest.mark.parametrize(
    "keyword",
    [
        "allOf", "anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas",
        "contains", "uniqueItems", "propertyNames", "patternProperties", "minProperties",
        "maxProperties", "prefixItems", "additionalProperties", "multipleOf", "pattern", "format",
        "const", "enum", "required", "maxContains",
    ],
)  # fmt: skip
@settings(parent=SETTINGS, max_examples=25)
@given(data=st.data())
def test_each_keyword_is_kept(keyword: str, data: st.DataObject) -> None:
    """Schemas that have the keyword at their root, beside whatever else was drawn."""
    found = schemas.filter(lambda schema: isinstance(schema, dict) and keyword in schema)
    schema = data.draw(found)
    for _ in range(4):
        assert_agrees(schema, data.draw(values))
