"""The last look at an answer, and what the trace has of it."""

import json
import logging
from collections.abc import Iterator

import pytest

from gateway.answer_check import AnswerChecks
from gateway.errors import ConstraintViolated
from gateway.final_check import FinalCheck
from gateway.generation import GenerationRequest
from gateway.tools.calls import CollectedCall, Tool, ToolRequest
from gateway.tools.check import ToolCheck
from grammar.spec import ConstraintSpec
from runtime.messages import AttributeValue, Phase, Sampling
from telemetry import names

SCHEMA = {
    "type": "object",
    "properties": {"salary": {"type": "integer", "minimum": 10}},
    "required": ["salary"],
}
NOWHERE = {"$ref": "https://example.org/secret.json"}


@pytest.fixture
def checks() -> Iterator[AnswerChecks]:
    kept = AnswerChecks()
    yield kept
    kept.close()


def request(schema: object = SCHEMA) -> GenerationRequest:
    return GenerationRequest(
        request_id="r",
        prompts=(),
        sampling=Sampling(max_tokens=1),
        max_tokens=None,
        constraint=ConstraintSpec("json_schema", json.dumps(schema)),
        log_fields={"request_id": "req_1", "trace_id": "ab"},
    )


def ticking() -> Iterator[int]:
    yield from range(100, 1000, 10)


def final_check(
    checks: AnswerChecks, asked: GenerationRequest, *, tools: ToolRequest | None = None
) -> FinalCheck:
    ticks = ticking()
    return FinalCheck(
        asked,
        check=None if asked.constraint is None else checks.of(asked.constraint),
        tool_check=None if tools is None else ToolCheck(checks, tools),
        clock=lambda: next(ticks),
    )


async def test_valid_answer_leaves_a_phase_that_says_so(checks: AnswerChecks) -> None:
    asked = request()
    await final_check(checks, asked).verify(2, '{"salary": 11}')
    expected: dict[str, AttributeValue] = {
        names.ATTR_VALIDATION: "valid",
        names.ATTR_CHOICE: 2,
        names.ATTR_CONSTRAINT_KIND: "json_schema",
    }
    assert asked.phase_log == [Phase(names.SPAN_VALIDATE, 100, 110, expected)]


async def test_invalid_answer_names_the_keyword_and_nothing_that_was_said(
    checks: AnswerChecks,
) -> None:
    asked = request()
    with pytest.raises(ConstraintViolated):
        await final_check(checks, asked).verify(0, '{"salary": 9}')
    (phase,) = asked.phase_log
    assert phase.attributes == {
        names.ATTR_VALIDATION: "invalid",
        names.ATTR_CHOICE: 0,
        names.ATTR_CONSTRAINT_KIND: "json_schema",
        names.ATTR_CONSTRAINT_KEYWORD: "minimum",
        names.ATTR_CONSTRAINT_POINTER: "/properties/*/minimum",
    }


async def test_answer_that_cannot_be_judged_is_given_and_logged_with_its_ids(
    checks: AnswerChecks, caplog: pytest.LogCaptureFixture
) -> None:
    asked = request(NOWHERE)
    with caplog.at_level(logging.WARNING):
        await final_check(checks, asked).verify(0, "{}")
    (phase,) = asked.phase_log
    assert phase.attributes[names.ATTR_VALIDATION] == "unknown"
    (record,) = caplog.records
    assert (record.__dict__["request_id"], record.__dict__["trace_id"]) == ("req_1", "ab")
    assert "secret" not in record.getMessage()


async def test_calls_of_strict_tools_are_checked_instead_of_the_text(checks: AnswerChecks) -> None:
    asked = request()
    tools = ToolRequest((Tool("pay", json.dumps(SCHEMA), is_strict=True),))
    check = final_check(checks, asked, tools=tools)
    await check.verify(0, "no JSON", [CollectedCall("1", "pay", ['{"salary":', "12}"])])
    with pytest.raises(ConstraintViolated, match="arguments of 'pay'"):
        await check.verify(0, "no JSON", [CollectedCall("1", "pay", ["{}"])])
    kinds = [phase.attributes[names.ATTR_CONSTRAINT_KIND] for phase in asked.phase_log]
    verdicts = [phase.attributes[names.ATTR_VALIDATION] for phase in asked.phase_log]
    assert (kinds, verdicts) == (["tool_calls"] * 2, ["valid", "invalid"])


async def test_where_nothing_is_strict_there_is_no_phase(checks: AnswerChecks) -> None:
    asked = GenerationRequest("r", (), Sampling(max_tokens=1), None)
    check = final_check(checks, asked, tools=ToolRequest((Tool("pay", "{}"),)))
    await check.verify(0, "text")
    await check.verify(0, "", [CollectedCall("1", "pay", ["no JSON"])])
    assert (asked.phase_log, check.reads_texts) == ([], False)
