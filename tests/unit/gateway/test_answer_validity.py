"""Answers are held against their schemas by the jsonschema package."""

import pytest

from gateway.answer_validity import AnswerJudge
from telemetry.workload_schemas import SCHEMAS

PERSON = dict(SCHEMAS)["person"]


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        ('{"name": "Ada", "age": 36, "role": "admin"}', True),
        ('{"name": "Ada", "age": 36.5, "role": "admin"}', False),
        ('{"name": "Ada", "age": 36}', False),
        ('{"name": "Ada", "age": 36, "role": "admin", "x": 1}', False),
        ('{"name": "Ada", "age": NaN, "role": "admin"}', False),
        ('{"name": "Ada", "age": 36, "role": "adm', False),
        ("", False),
        ("[" * 100_000, False),
    ],
)
def test_an_answer_fits_or_not(text: str, is_valid: bool) -> None:
    judge = AnswerJudge()
    assert [judge.is_valid(text, PERSON) for _ in range(2)] == [is_valid] * 2


def test_what_no_json_has_is_no_number() -> None:
    judge = AnswerJudge()
    assert judge.is_valid('{"price": 1e3}', {"properties": {"price": {"type": "number"}}})
    assert not judge.is_valid('{"price": NaN}', {"properties": {"price": {"type": "number"}}})


@pytest.mark.parametrize(
    "schema", [{"type": 5}, "text", {"$ref": "#/nowhere"}, {"$ref": "http://127.0.0.1:9/x"}]
)
def test_nothing_fits_what_is_no_schema(schema: object) -> None:
    assert not AnswerJudge().is_valid("{}", schema)


def test_a_tree_fits_its_own_schema_at_any_depth() -> None:
    schema = dict(SCHEMAS)["tree"]
    judge = AnswerJudge()
    assert judge.is_valid(
        '{"root": {"name": "a", "children": [{"name": "b", "children": []}]}}', schema
    )
    assert not judge.is_valid('{"root": {"name": "a", "children": [{"name": "b"}]}}', schema)
