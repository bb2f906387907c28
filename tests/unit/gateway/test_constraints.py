"""From the fields of a request to the constraint that its answer is held to."""

from typing import Any

import pytest

from gateway.constraint_request import ConstraintRequest, constraint_request
from gateway.errors import InvalidRequest
from gateway.schemas.chat_request import ChatCompletionRequest
from gateway.schemas.completion_request import CompletionRequest
from gateway.validation import validate
from grammar.spec import ConstraintSpec

TAGS = {"structures": [{"begin": "<f>", "schema": {}, "end": "</f>"}], "triggers": ["<f"]}
TAGS_TEXT = '{"structures":[{"begin":"<f>","schema":{},"end":"</f>"}],"triggers":["<f"]}'


def asked(**parameters: Any) -> ConstraintRequest | None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **parameters}
    return constraint_request(validate(ChatCompletionRequest, body))


def constraint(**parameters: Any) -> ConstraintRequest:
    found = asked(**parameters)
    assert found is not None
    return found


def refusal(**parameters: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        asked(**parameters)
    return caught.value


@pytest.mark.parametrize(
    ("parameters", "kind", "value"),
    [
        ({"response_format": {"type": "json_object"}}, "json_object", ""),
        ({"response_format": {"type": "structural_tag", **TAGS}}, "structural_tag", TAGS_TEXT),
        ({"structured_outputs": {"json": {"b": 1, "a": 2}}}, "json_schema", '{"b":1,"a":2}'),
        ({"structured_outputs": {"json": '{"b": 1}'}}, "json_schema", '{"b":1}'),
        ({"structured_outputs": {"regex": "a+", "json": None}}, "regex", "a+"),
        ({"structured_outputs": {"regex": ""}}, "regex", ""),
        ({"structured_outputs": {"choice": ["b", "a"]}}, "choice", '["b","a"]'),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, "gbnf", 'root ::= "a"'),
        ({"structured_outputs": {"grammar": "start: /a/"}}, "lark", "start: /a/"),
        ({"structured_outputs": {"json_object": True}}, "json_object", ""),
        ({"structured_outputs": {"structural_tag": TAGS}}, "structural_tag", TAGS_TEXT),
        ({"guided_json": {"type": "object"}}, "json_schema", '{"type":"object"}'),
        ({"guided_regex": "a"}, "regex", "a"),
        ({"guided_choice": ["a"]}, "choice", '["a"]'),
        ({"guided_grammar": "start: /a/"}, "lark", "start: /a/"),
        ({"regex": "a"}, "regex", "a"),
        ({"ebnf": 'root ::= "a"'}, "gbnf", 'root ::= "a"'),
        ({"json_schema": '{"type": "object"}'}, "json_schema", '{"type":"object"}'),
        ({"json_schema": {"type": "object"}}, "json_schema", '{"type":"object"}'),
        ({"grammar": 'root ::= "a"'}, "gbnf", 'root ::= "a"'),
    ],
)
def test_each_field_is_a_constraint_under_its_own_name(
    parameters: dict[str, Any], kind: str, value: str
) -> None:
    found = constraint(**parameters)
    assert (found.kind, found.value, found.param) == (kind, value, next(iter(parameters)))


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"response_format": {"type": "text"}},
        {"guided_decoding_backend": "xgrammar", "allow_checked": True},
    ],
)
def test_plain_text_is_no_constraint(parameters: dict[str, Any]) -> None:
    assert asked(**parameters) is None


def test_completions_take_the_same_fields() -> None:
    fields = validate(CompletionRequest, {"model": "m", "prompt": "x", "ebnf": 'root ::= "a"'})
    found = constraint_request(fields)
    assert found is not None
    assert (found.kind, found.param) == ("gbnf", "ebnf")


def test_schema_keeps_the_clients_key_order() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    value = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    found = constraint(response_format=value)
    assert found.value == '{"type":"object","properties":{"b":{},"a":{}}}'


def test_a_schema_that_need_not_be_strict_is_enforced_all_the_same() -> None:
    def spec(strict: bool) -> ConstraintSpec:
        inner = {"name": "x", "strict": strict, "schema": {"type": "object"}}
        found = constraint(response_format={"type": "json_schema", "json_schema": inner})
        return found.spec(engine="auto", allows_checked=False)

    assert spec(strict=False) == spec(strict=True)


def test_the_layout_of_a_schemas_text_makes_no_other_constraint() -> None:
    text = '{\n  "const": "a \\" {  b",\t"x": 1.10 }'
    assert constraint(guided_json=text).value == '{"const":"a \\" {  b","x":1.10}'


@pytest.mark.parametrize(
    "parameters",
    [
        {"guided_json": {}, "guided_regex": "a"},
        {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
        {"regex": "a", "ebnf": 'root ::= "a"'},
        {
            "guided_decoding_backend": "xgrammar",
            "structured_outputs": {"regex": "a", "backend": "auto"},
        },
    ],
)
def test_of_two_constraints_both_are_named(parameters: dict[str, Any]) -> None:
    error = refusal(**parameters)
    assert error.code == "invalid_value"
    assert all(f"'{name}" in error.message for name in parameters)


@pytest.mark.parametrize(
    ("backend", "engine"),
    [
        ("auto", "auto"),
        ("guidance", "llguidance"),
        ("llguidance", "llguidance"),
        ("xgrammar:no-fallback", "xgrammar"),
        ("outlines", "outlines"),
    ],
)
def test_the_engine_may_be_named(backend: str, engine: str) -> None:
    older = constraint(regex="a", guided_decoding_backend=backend)
    newer = constraint(structured_outputs={"regex": "a", "backend": backend})
    assert older.engine == newer.engine == engine
    assert older.spec(engine="xgrammar", allows_checked=False).engine == engine


@pytest.mark.parametrize("backend", ["lm-format-enforcer", "", "auto:no-additional-properties"])
def test_another_engine_is_refused(backend: str) -> None:
    error = refusal(regex="a", guided_decoding_backend=backend)
    assert (error.code, error.param) == ("unsupported_value", "guided_decoding_backend")


def test_the_server_decides_what_the_request_leaves_open() -> None:
    found = constraint(regex="a")
    spec = found.spec(engine="xgrammar", allows_checked=True)
    assert spec == ConstraintSpec("regex", "a", engine="xgrammar", allows_checked=True)


@pytest.mark.parametrize(
    ("parameters", "allows"),
    [
        ({"regex": "a", "allow_checked": True}, True),
        ({"regex": "a", "allow_checked": False}, False),
        ({"structured_outputs": {"regex": "a", "allow_checked": True}}, True),
        (
            {"structured_outputs": {"regex": "a", "allow_checked": False}, "allow_checked": True},
            False,
        ),
    ],
)
def test_checked_answers_are_the_requests_own_choice(
    parameters: dict[str, Any], allows: bool
) -> None:
    found = constraint(**parameters)
    assert found.spec(engine="auto", allows_checked=not allows).allows_checked is allows


@pytest.mark.parametrize("pattern", ["[ ]?", r"[\n\t ]*", r"\s*", " "])
def test_a_whitespace_pattern_that_matches_a_space_allows_whitespace(pattern: str) -> None:
    assert constraint(guided_json={}, guided_whitespace_pattern=pattern).allows_whitespace
    outputs = {"json": {}, "whitespace_pattern": pattern}
    assert constraint(structured_outputs=outputs).allows_whitespace


def test_json_is_compact_unless_whitespace_is_asked_for() -> None:
    assert not constraint(guided_json={}).allows_whitespace
    assert not constraint(guided_json={}, guided_whitespace_pattern="").allows_whitespace
    outputs = {"json": {}, "disable_any_whitespace": True}
    assert not constraint(structured_outputs=outputs).allows_whitespace


@pytest.mark.parametrize("pattern", [r"\n", "  ", "x*", "a)|( ", "(", "[" + "a" * 300])
def test_any_other_whitespace_is_refused(pattern: str) -> None:
    error = refusal(guided_json={}, guided_whitespace_pattern=pattern)
    assert error.param == "guided_whitespace_pattern"


def test_compact_and_spaced_at_once_is_refused() -> None:
    outputs = {"json": {}, "whitespace_pattern": " ", "disable_any_whitespace": True}
    assert refusal(structured_outputs=outputs).param == "structured_outputs"


@pytest.mark.parametrize(
    ("outputs", "param"),
    [
        ({}, "structured_outputs"),
        ({"json_object": False}, "structured_outputs"),
        ({"regex": "a", "choice": ["a"]}, "structured_outputs"),
        ({"json": "{"}, "structured_outputs.json"),
        ({"json": "[]"}, "structured_outputs.json"),
        ({"json": '{"items":' * 5000 + "{}" + "}" * 5000}, "structured_outputs.json"),
        ({"structural_tag": "x"}, "structured_outputs.structural_tag"),
        ({"choice": []}, "structured_outputs.choice"),
        ({"choice": [1]}, "structured_outputs.choice[0]"),
        ({"regex": 5}, "structured_outputs.regex"),
        ({"lark": "x"}, "structured_outputs.lark"),
    ],
)
def test_wrong_structured_output_is_named(outputs: Any, param: str) -> None:
    assert refusal(structured_outputs=outputs).param == param


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ({"type": "json_schema"}, "json_schema"),
        ({"type": "json_schema", "json_schema": None}, "json_schema"),
        ({"type": "json_schema", "json_schema": {}}, "json_schema"),
        ({"type": "json_schema", "json_schema": {"schema": None}}, "json_schema"),
        ({"type": "structural_tag"}, "structures"),
        ({"type": "structural_tag", "structures": [{}]}, "triggers"),
    ],
)
def test_schema_that_is_missing_is_a_missing_parameter(value: Any, param: str) -> None:
    error = refusal(response_format=value)
    assert (error.code, error.param) == (
        "missing_required_parameter",
        f"response_format.{param}",
    )


def test_parts_of_another_type_do_not_go_with_a_format() -> None:
    error = refusal(response_format={"type": "json_object", "triggers": ["x"]})
    assert (error.code, error.param) == ("invalid_value", "response_format.triggers")
