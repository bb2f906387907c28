"""Whatever the masks of tools allow is read as text and valid calls, in every dialect."""

import asyncio
import json
import random
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from gateway.detokenizer import Detokenizer
from gateway.tools.calls import Tool, ToolMode, ToolRequest
from gateway.tools.constraint import ToolPlan, prepare_tools
from gateway.tools.dialect import Dialect
from gateway.tools.families import (
    GRANITE,
    HERMES,
    LLAMA3_JSON,
    MISTRAL,
    MISTRAL_ARGS,
    PHI,
    PHI_FUNCTOOLS,
    PYTHONIC,
)
from grammar.matcher import Matcher, mask_words
from grammar.spec import ConstraintSpec
from tests.tool_probe import EngineProbe, tool_assets, tool_engine, tool_tokenizer
from tests.unit.gateway.test_tool_parser import joined

SCHEMAS: dict[str, dict[str, Any]] = {
    "f": {
        "type": "object",
        "properties": {
            "to": {"type": "string", "maxLength": 4},
            "n": {"type": "integer", "minimum": -3, "maximum": 12},
            "of": {"type": "array", "items": {"enum": ["a", True, None]}, "maxItems": 2},
        },
        "required": ["n"],
        "additionalProperties": False,
    },
    "no_arguments": {"type": "object", "properties": {}, "additionalProperties": False},
}
TOOLS = tuple(Tool(name, json.dumps(schema), is_strict=True) for name, schema in SCHEMAS.items())
DIALECTS = (HERMES, LLAMA3_JSON, PYTHONIC, MISTRAL, MISTRAL_ARGS, GRANITE, PHI, PHI_FUNCTOOLS)
ANSWER = {"type": "object", "properties": {"name": {"enum": ["f", "[f("]}}, "maxProperties": 1}
MAX_TOKENS = 400


class Walk:
    """A model that knows nothing, which prefers to end what it began."""

    def __init__(self, matcher: Matcher, *, has_tokens: bool, rng: random.Random) -> None:
        self._matcher = matcher.fork()
        self._assets = tool_assets(has_tokens=has_tokens)
        self._rng = rng
        self._closing = frozenset(b'"]})>')

    def tokens(self, *prefix: int) -> list[int] | None:
        """None for a walk that did not find its end."""
        assert self._matcher.accept(prefix) == len(prefix)
        output = list(prefix)
        while len(output) < MAX_TOKENS:
            allowed = self._allowed()
            ends = allowed & set(self._assets.eos_token_ids)
            if ends and (ends == allowed or self._rng.random() < 0.5):
                return output
            choices = sorted(allowed - ends)
            closing = [one for one in choices if one in self._closing]
            token_id = self._rng.choice(closing if closing and len(output) > 60 else choices)
            assert self._matcher.accept([token_id]) == 1
            output.append(token_id)
        return None

    def _allowed(self) -> set[int]:
        row = np.zeros(mask_words(self._assets.vocab_size), dtype=np.int32)
        self._matcher.fill(row)
        return set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())


def plan_of(
    dialect: Dialect, mode: ToolMode, *, has_tokens: bool, answer: ConstraintSpec | None = None
) -> ToolPlan:
    return asyncio.run(
        prepare_tools(
            EngineProbe(has_tokens=has_tokens),
            ToolRequest(TOOLS, mode, max_calls=3),
            dialect,
            tokenizer=tool_tokenizer(has_tokens=has_tokens),
            answer=answer,
        )
    )


def read(plan: ToolPlan, output: list[int], *, has_tokens: bool) -> Any:
    """As a choice of an answer reads its tokens."""
    numbers = iter(range(100))
    reader = plan.parser(lambda: f"id{next(numbers)}")
    text = Detokenizer(tool_tokenizer(has_tokens=has_tokens), drops_space=False)
    parts = []
    for token_id in output:
        if token_id == plan.trigger_id:
            parts += [reader.feed(text.flush()), reader.trigger()]
        elif token_id in plan.marker_texts:
            parts.append(reader.feed(text.flush() + plan.marker_texts[token_id]))
        else:
            parts.append(reader.feed(text.feed(token_id)))
    parts += [reader.feed(text.flush()), reader.finish()]
    return (*joined(*parts), reader)


def check_calls(calls: list[tuple[str, str]]) -> None:
    for name, arguments in calls:
        Draft202012Validator(SCHEMAS[name]).validate(json.loads(arguments))


@pytest.mark.parametrize("has_tokens", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"{dialect.name}")
def test_a_required_call_is_valid_and_ends(dialect: Dialect, *, has_tokens: bool) -> None:
    plan = plan_of(dialect, "required", has_tokens=has_tokens)
    matcher = tool_engine(has_tokens=has_tokens).build(plan.prepared)
    for seed in range(8):
        walk = Walk(matcher, has_tokens=has_tokens, rng=random.Random(seed))
        output = walk.tokens()
        assert output is not None
        content, calls, reader = read(plan, output, has_tokens=has_tokens)
        assert content == ""
        assert 1 <= reader.num_complete_calls == len(calls) <= 3
        assert not reader.is_truncated
        check_calls(calls)


@pytest.mark.parametrize("has_tokens", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"{dialect.name}")
def test_text_may_end_in_valid_calls(dialect: Dialect, *, has_tokens: bool) -> None:
    plan = plan_of(dialect, "auto", has_tokens=has_tokens)
    matcher = tool_engine(has_tokens=has_tokens).build(plan.prepared)
    tokenizer = tool_tokenizer(has_tokens=has_tokens)
    text = [] if dialect.trigger is None else list("Sure é".encode())
    begin = f"{dialect.opening}{dialect.forms[-1].before}"
    begin += "" if dialect.forms[-1].before else dialect.forms[-1].begin("f")
    prefix = [*text, *tokenizer.encode(begin, add_special=False)]
    for seed in range(5):
        walk = Walk(matcher, has_tokens=has_tokens, rng=random.Random(seed))
        output = walk.tokens(*prefix)
        assert output is not None
        content, calls, reader = read(plan, output, has_tokens=has_tokens)
        assert content == bytes(text).decode()
        assert reader.num_complete_calls == len(calls) >= 1
        check_calls(calls)


@pytest.mark.parametrize("has_tokens", [False, True])
@pytest.mark.parametrize(
    "begin", ['{"name":"f"', '```json\n{\n  "name": "f"', '[{"name": "no_arguments"', "<tools>\n"]
)
def test_wrapped_calls_are_valid_and_end(begin: str, *, has_tokens: bool) -> None:
    plan = plan_of(HERMES, "auto", has_tokens=has_tokens)
    matcher = tool_engine(has_tokens=has_tokens).build(plan.prepared)
    num_calls = 0
    for seed in range(6):
        walk = Walk(matcher, has_tokens=has_tokens, rng=random.Random(seed))
        output = walk.tokens(*begin.encode())
        assert output is not None
        content, calls, reader = read(plan, output, has_tokens=has_tokens)
        assert bool(content) != bool(calls) or not begin.endswith('"')
        assert reader.num_complete_calls == len(calls) <= 3
        check_calls(calls)
        num_calls += len(calls)
    assert num_calls or not begin.endswith('"')


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"{dialect.name}")
def test_text_without_calls_is_read_as_it_is(dialect: Dialect) -> None:
    plan = plan_of(dialect, "auto", has_tokens=True)
    matcher = tool_engine(has_tokens=True).build(plan.prepared)
    for seed in range(5):
        output = Walk(matcher, has_tokens=True, rng=random.Random(seed)).tokens(*b"I think")
        assert output is not None
        content, calls, _ = read(plan, output, has_tokens=True)
        text = bytes(token_id for token_id in output if token_id < 256).decode(errors="replace")
        if all(token_id < 256 for token_id in output) and not calls:
            assert content == text


@pytest.mark.parametrize("has_tokens", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"{dialect.name}")
def test_calls_and_answers_are_told_apart(dialect: Dialect, *, has_tokens: bool) -> None:
    answer = ConstraintSpec("json_schema", json.dumps(ANSWER))
    plan = plan_of(dialect, "auto", has_tokens=has_tokens, answer=answer)
    matcher = tool_engine(has_tokens=has_tokens).build(plan.prepared)
    num_calls = num_answers = 0
    for seed in range(16):
        output = Walk(matcher, has_tokens=has_tokens, rng=random.Random(seed)).tokens()
        assert output is not None
        content, calls, _ = read(plan, output, has_tokens=has_tokens)
        check_calls(calls)
        num_calls += bool(calls)
        num_answers += bool(content)
        assert bool(calls) != bool(content)
        if content:
            Draft202012Validator(ANSWER).validate(json.loads(content))
    assert num_calls
    assert num_answers
