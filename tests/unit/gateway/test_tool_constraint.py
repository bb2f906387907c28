"""What a request's tools become: enforced, loosened or refused; and how answers are read then."""

import json
from typing import Any

import pytest

from gateway.answer_check import AnswerChecks
from gateway.errors import GatewayError, InvalidRequest, Overloaded
from gateway.tools.calls import Tool, ToolMode, ToolRequest
from gateway.tools.check import ToolCheck
from gateway.tools.constraint import MAX_CALLS, MAX_SINGLE_TRIES, ToolPlan, prepare_tools
from gateway.tools.dialect import Dialect
from gateway.tools.families import GRANITE, HERMES, LLAMA3_JSON, MISTRAL_ARGS, PYTHONIC
from grammar.errors import GrammarError, UnsupportedConstraint
from grammar.spec import ConstraintKind, ConstraintSpec
from tests.fake_constraint_probe import FakeConstraintProbe
from tests.tool_probe import EngineProbe, tool_tokenizer

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
# Legal, and more than any grammar keeps.
BEYOND = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}},
}
# Legal, and refused by the compiler.
REFUSED = {"type": "object", "properties": {"a": {"$ref": "https://example.com/other.json"}}}
MALFORMED = {"type": "object", "properties": {"a": {"type": "banana"}}}


def tool(name: str, schema: Any = CITY, *, is_strict: bool = False) -> Tool:
    return Tool(name, json.dumps(schema), is_strict=is_strict, param=f"tools.{name}")


def request(*tools: Tool, mode: ToolMode = "auto", max_calls: int | None = None) -> ToolRequest:
    return ToolRequest(tools or (tool("weather"),), mode, max_calls)


async def planned(
    wanted: ToolRequest,
    dialect: Dialect = HERMES,
    *,
    has_tokens: bool = False,
    probe: EngineProbe | None = None,
    answer: ConstraintSpec | None = None,
) -> ToolPlan:
    return await prepare_tools(
        probe or EngineProbe(has_tokens=has_tokens),
        wanted,
        dialect,
        tokenizer=tool_tokenizer(has_tokens=has_tokens),
        answer=answer,
    )


def asked(probe: EngineProbe) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(probe.checked[-1].value)
    return value


def schemas(probe: EngineProbe) -> list[Any]:
    return [call["schema"] for call in asked(probe)["calls"]]


async def refusal(wanted: ToolRequest, **options: Any) -> tuple[str | None, str | None, str]:
    with pytest.raises(GatewayError) as caught:
        await planned(wanted, **options)
    assert caught.value.status == 400
    return caught.value.code, caught.value.param, caught.value.message


async def test_tools_are_enforced_and_leave_no_gaps() -> None:
    probe = EngineProbe()
    plan = await planned(request(tool("weather"), tool("time", BEYOND)), probe=probe)
    assert schemas(probe) == [CITY, BEYOND]
    assert plan.prepared.gaps == ()
    assert (plan.names, plan.at_start, plan.is_cached) == (("weather", "time"), False, False)
    assert plan.compile_ms == 1.5
    assert asked(probe)["max_calls"] == MAX_CALLS


async def test_a_forced_call_is_the_whole_answer() -> None:
    probe = EngineProbe()
    plan = await planned(request(mode="required", max_calls=1), LLAMA3_JSON, probe=probe)
    assert plan.at_start
    assert (asked(probe)["content"], asked(probe)["max_calls"]) == ("none", 1)
    assert len(asked(probe)["calls"]) == 1


async def test_a_model_that_may_choose_may_use_every_form_of_its_dialect() -> None:
    probe = EngineProbe()
    await planned(request(tool("a"), tool("b")), LLAMA3_JSON, probe=probe)
    assert [call["begin"] for call in asked(probe)["calls"]] == [
        '{"name": "a", "parameters": ',
        '{"name": "b", "parameters": ',
        '{"type": "function", "name": "a", "parameters": ',
        '{"type": "function", "name": "b", "parameters": ',
    ]
    assert asked(probe)["triggers"] == ['{"name": "', '{"type": "function", "name": "']


async def test_markers_are_tokens_where_the_tokenizer_has_them() -> None:
    tokenizer = tool_tokenizer(has_tokens=True)
    plan = await planned(request(), has_tokens=True)
    trigger, end = (tokenizer.added_token_id(text) for text in ("<tool_call>", "</tool_call>"))
    assert plan.trigger_id == trigger
    assert plan.marker_texts == {trigger: "<tool_call>", end: "</tool_call>"}
    plan = await planned(request(), MISTRAL_ARGS, has_tokens=True)
    assert sorted(plan.marker_texts.values()) == ["[ARGS]", "[TOOL_CALLS]"]
    plan = await planned(request(), GRANITE, has_tokens=False)
    assert (plan.trigger_id, dict(plan.marker_texts)) == (None, {})


async def test_the_parser_of_a_plan_reads_what_the_plan_allows() -> None:
    plan = await planned(request(), has_tokens=True)
    reader = plan.parser(lambda: "id")
    assert reader.feed("<tool_call>").content == "<tool_call>"
    parts = [reader.trigger(), reader.feed('\n{"name": "weather", "arguments": {"city":"x"}}')]
    assert [fragment.name for part in parts for fragment in part.fragments] == ["weather", None]
    assert (await planned(request())).parser().feed("<tool_call>").content == ""


async def test_gaps_of_a_strict_tool_are_refused_and_others_are_not() -> None:
    code, param, message = await refusal(
        request(tool("free", BEYOND), tool("strict", BEYOND, is_strict=True))
    )
    assert (code, param) == ("invalid_function_parameters", "tools.strict")
    assert "'strict' at '/properties/a/uniqueItems'" in message


@pytest.mark.parametrize("mode", ["auto", "required"])
async def test_a_schema_that_cannot_be_compiled_leaves_any_object(mode: ToolMode) -> None:
    probe = EngineProbe()
    tools = (tool("a"), tool("b", REFUSED), tool("c", CITY, is_strict=True))
    await planned(request(*tools, mode=mode), LLAMA3_JSON, probe=probe)
    assert schemas(probe)[:3] == [CITY, {"type": "object"}, CITY]
    assert len(probe.checked) == 2


async def test_a_strict_schema_that_cannot_be_compiled_is_refused() -> None:
    code, param, message = await refusal(
        request(tool("a"), tool("b", REFUSED, is_strict=True)), dialect=LLAMA3_JSON
    )
    assert (code, param) == ("invalid_function_parameters", "tools.b")
    assert message.startswith("Invalid schema for function 'b' at '/properties/a/$ref': ")


@pytest.mark.parametrize(
    "schema",
    [
        MALFORMED,
        {"type": "object", "properties": {"a": 5}},
        {"type": "object", "properties": []},
        {"type": "object", "required": "a"},
        {"type": "object", "properties": {"a": {"enum": {}}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"minLength": -1}]}}},
    ],
)
async def test_what_is_no_schema_is_refused_also_where_it_would_not_be_kept(schema: Any) -> None:
    code, param, _ = await refusal(request(tool("a", schema), tool("b")))
    assert (code, param) == ("invalid_function_parameters", "tools.a")


async def test_keywords_that_only_python_cannot_write_leave_any_of_them() -> None:
    probe = EngineProbe()
    schema = {"type": "object", "properties": {"a-b": {"type": "string"}}}
    await planned(request(tool("a", schema), tool("b")), PYTHONIC, probe=probe)
    assert schemas(probe) == [{"type": "object"}, CITY]
    code, param, _ = await refusal(request(tool("a", schema, is_strict=True)), dialect=PYTHONIC)
    assert (code, param) == ("invalid_function_parameters", "tools.a")


async def test_many_schemas_that_cannot_be_compiled_are_given_up_together() -> None:
    probe = EngineProbe()
    tools = [tool(f"t{number}", REFUSED) for number in range(20)]
    await planned(request(*tools, tool("ok")), probe=probe)
    assert len(probe.checked) == MAX_SINGLE_TRIES + 2
    assert schemas(probe) == [{"type": "object"}] * 21


async def test_where_the_whole_is_too_expensive_the_strict_tools_are_kept() -> None:
    probe = EngineProbe(costly="costly")
    costly = {**CITY, "description": "costly"}
    await planned(request(tool("a", costly), tool("b", CITY, is_strict=True)), probe=probe)
    assert schemas(probe) == [{"type": "object"}, CITY]
    code, param, _ = await refusal(
        request(tool("a"), tool("b", costly, is_strict=True)), probe=EngineProbe(costly="costly")
    )
    assert (code, param) == ("schema_too_complex", "tools")


@pytest.mark.parametrize("kind", ["json_schema", "json_object"])
async def test_an_answer_in_json_may_stand_instead_of_calls(kind: ConstraintKind) -> None:
    probe = EngineProbe()
    value = json.dumps(CITY) if kind == "json_schema" else ""
    plan = await planned(request(), probe=probe, answer=ConstraintSpec(kind, value))
    expected = CITY if kind == "json_schema" else {"type": "object"}
    assert asked(probe)["content"] == {"schema": expected}
    assert plan.at_start
    plan = await planned(request(mode="required"), probe=probe, answer=ConstraintSpec(kind, value))
    assert asked(probe)["content"] == "none"


async def test_calls_that_look_like_an_answer_get_a_marker_of_their_own() -> None:
    answer, probe = ConstraintSpec("json_object"), EngineProbe(has_tokens=True)
    plan = await planned(request(), LLAMA3_JSON, has_tokens=True, probe=probe, answer=answer)
    assert asked(probe)["opening"] == "<|python_tag|>"
    assert plan.marker_texts[plan.trigger_id or 0] == "<|python_tag|>"
    plan = await planned(request(), LLAMA3_JSON, answer=answer)
    assert plan.dialect == HERMES
    plan = await planned(request(), PYTHONIC, answer=answer)
    assert plan.dialect == PYTHONIC
    any_answer = ConstraintSpec("json_schema", "{}")
    assert (await planned(request(), PYTHONIC, answer=any_answer)).dialect == HERMES


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ConstraintSpec("regex", "a+"), "invalid_value"),
        (ConstraintSpec("json_schema", json.dumps(MALFORMED)), "invalid_json_schema"),
        (ConstraintSpec("json_schema", json.dumps(BEYOND)), "invalid_json_schema"),
    ],
)
async def test_an_answer_that_cannot_be_kept_is_refused_by_its_own_name(
    answer: ConstraintSpec, code: str
) -> None:
    found = await refusal(request(), answer=answer)
    assert found[:2] == (code, "response_format")


async def test_a_broken_probe_is_no_fault_of_the_request() -> None:
    probe = FakeConstraintProbe(GrammarError("no child can be started"))
    with pytest.raises(Overloaded):
        await prepare_tools(probe, request(), HERMES, tokenizer=tool_tokenizer(has_tokens=False))


async def test_a_whole_that_is_refused_without_a_place_keeps_the_strict_tools() -> None:
    probe = FakeConstraintProbe()
    tokenizer = tool_tokenizer(has_tokens=False)
    tools = (tool("a"), tool("b", is_strict=True))

    def too_large(spec: ConstraintSpec) -> Any:
        if spec.value.count("city") > 2:
            raise UnsupportedConstraint("the grammar is too large")
        return FakeConstraintProbe()._as_asked(spec)

    probe.prepare = too_large
    plan = await prepare_tools(probe, request(*tools), HERMES, tokenizer=tokenizer)
    assert plan.prepared.grammar.count("city") == 2
    with pytest.raises(InvalidRequest) as caught:
        await prepare_tools(
            probe,
            request(*(tool(name, is_strict=True) for name in "ab")),
            HERMES,
            tokenizer=tokenizer,
        )
    assert (caught.value.code, caught.value.param) == ("invalid_function_parameters", "tools")


async def test_the_arguments_of_strict_tools_are_validated() -> None:
    checks = AnswerChecks()
    try:
        check = ToolCheck(checks, request(tool("a"), tool("b", is_strict=True)))
        assert await check.problem([("a", "{}"), ("b", '{"city": "x"}')]) is None
        problem = await check.problem([("b", '{"city": "x"}'), ("b", "{}")])
        assert problem is not None
        assert problem.message.startswith("the arguments of 'b': ")
    finally:
        checks.close()
