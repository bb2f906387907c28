"""The keywords that engines are known to drop: each is enforced, or refused with its place."""

import gzip
import json
import os
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from grammar.engines import load_engine
from grammar.errors import UnsupportedConstraint
from grammar.matcher import GrammarEngine, compile_constraint
from grammar.spec import EngineName
from tests.grammar_walk import Texts, compact, json_schema
from tests.small_vocabulary import small_vocabulary

ROOT = Path(__file__).resolve().parent.parent.parent
NUM_MASKBENCH_SCHEMAS = 150

# (schema, an instance that it forbids)
UNSOUND_CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "multipleOf of a number": ({"type": "number", "multipleOf": 0.5}, 0.3),
    "multipleOf and one bound": ({"type": "integer", "minimum": 1, "multipleOf": 3}, 4),
    "pattern and length": ({"type": "string", "pattern": "^a+$", "maxLength": 2}, "aaa"),
    "format": ({"type": "string", "format": "date"}, "2023-02-30"),
    "uniqueItems": ({"type": "array", "uniqueItems": True}, [1, 1]),
    "contains": ({"type": "array", "contains": {"const": 1}}, [2]),
    "required without properties": ({"type": "object", "required": ["a"]}, {"b": 1}),
    "required alone": ({"required": ["a"]}, {}),
    "dependentRequired": ({"dependentRequired": {"a": ["b"]}}, {"a": 1}),
    "dependencies": ({"dependencies": {"a": ["b"]}}, {"a": 1}),
    "if then": ({"if": {"type": "string"}, "then": {"maxLength": 1}}, "ab"),
    "not": ({"not": {"type": "string"}}, "a"),
    "anyOf with siblings": ({"anyOf": [{"type": "string"}, {"type": "null"}], "minLength": 2}, "a"),
    "overlapping oneOf": ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, 3),
    "oneOf integer and number": ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 1),
    "allOf": ({"allOf": [{"type": "string"}, {"maxLength": 1}]}, "ab"),
    "$ref with siblings": (
        {"$ref": "#/$defs/s", "$defs": {"s": {"type": "string"}}, "minLength": 2},
        "a",
    ),
    "enum against type": ({"type": "string", "enum": ["a", 1]}, 1),
    "const against type": ({"type": "string", "const": 1}, 1),
    "untyped pattern": ({"pattern": "^a$"}, "b"),
    "untyped bound": ({"maximum": 1}, 2),
    "untyped properties": ({"properties": {"a": {"type": "null"}}}, {"a": 1}),
    "propertyNames": ({"type": "object", "propertyNames": {"pattern": "^a"}}, {"b": 1}),
    "repeated keys and minProperties": ({"type": "object", "minProperties": 2}, '{"a":1,"a":2}'),
    "an escaped key": (
        {"type": "object", "properties": {"a": {"type": "null"}}},
        '{"\\u0061":1}',
    ),
    "patternProperties": ({"type": "object", "patternProperties": {"a": False}}, {"bab": 1}),
    "unevaluatedProperties": ({"type": "object", "unevaluatedProperties": False}, {"a": 1}),
    "exclusive bound next to another": (
        {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5},
        0,
    ),
    "a bound beyond doubles": ({"type": "integer", "maximum": 2**53 + 1}, 2**53 + 2),
    "a const beyond doubles": ({"const": 2**53 + 1}, 2**53),
    "a const beyond 64 bits": ({"const": 10**29 + 1}, 10**29),
    "an enum that becomes a power of ten": ({"enum": [10**29 + 1]}, 1e29),
    "lenient engine options": (
        {"x-guidance": {"lenient": True}, "type": "object", "uniqueItems": True},
        [1],
    ),
    "tuple of an older draft": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "items": [{"type": "string"}],
            "additionalItems": False,
        },
        ["a", 1],
    ),
    "a boolean bound of draft 4": ({"minimum": 3, "exclusiveMinimum": True}, 3),
    "a leap second": ({"type": "string", "format": "time"}, "10:00:60Z"),
}


@cache
def loaded(name: EngineName) -> tuple[GrammarEngine, Texts]:
    return load_engine(name, small_vocabulary()), Texts(small_vocabulary())


@pytest.mark.parametrize("name", ["llguidance", "xgrammar", "outlines"])
@pytest.mark.parametrize("case", UNSOUND_CASES)
def test_an_invalid_instance_is_impossible_or_the_schema_is_refused(
    name: EngineName, case: str
) -> None:
    schema, invalid = UNSOUND_CASES[case]
    text = invalid if isinstance(invalid, str) and invalid[:1] == "{" else compact(invalid)
    engine, texts = loaded(name)
    try:
        matcher = compile_constraint(engine, json_schema(schema, name))
    except UnsupportedConstraint as error:
        refusal = error
    else:
        assert not texts.accepts(matcher, text)
        return
    if name == "outlines" and not refusal.pointer:
        return  # no keyword is to blame: the whole cannot be written as one regex
    assert refusal.pointer.startswith("/")
    assert refusal.keyword == refusal.pointer.rsplit("/", 1)[-1]


def test_llguidance_enforces_most_of_them() -> None:
    enforced = []
    for case, (schema, _) in UNSOUND_CASES.items():
        try:
            compile_constraint(loaded("llguidance")[0], json_schema(schema))
        except UnsupportedConstraint:
            continue
        enforced.append(case)
    assert len(enforced) >= 20


def maskbench_path() -> Path:
    configured = os.environ.get("RADIXGATE_MASKBENCH")
    return Path(configured) if configured else ROOT / "../shared/data/maskbench_dev.jsonl.gz"


@pytest.mark.skipif(
    not maskbench_path().is_file(),
    reason="no MaskBench file: set RADIXGATE_MASKBENCH to a .jsonl.gz",
)
def test_no_invalid_instance_of_real_schemas_is_accepted(
    record_property: Callable[[str, object], None],
) -> None:
    with gzip.open(maskbench_path(), "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    engine, texts = loaded("llguidance")
    accepted = refused = 0
    wrong = []
    for row in random.Random(7).sample(rows, min(NUM_MASKBENCH_SCHEMAS, len(rows))):
        try:
            matcher = compile_constraint(engine, json_schema(row["schema"]))
        except UnsupportedConstraint:
            refused += 1
            continue
        accepted += 1
        for test in row["tests"]:
            if not test["valid"] and texts.accepts(matcher, compact(test["data"])):
                wrong.append((row["id"], test["data"]))
    record_property("accepted", accepted)
    record_property("refused", refused)
    assert wrong == []
    assert accepted > 4 * refused
