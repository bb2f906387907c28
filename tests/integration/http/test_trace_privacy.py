"""What was said is in no span and in no log line, however a request ends; and in the spans' content
attributes, and only there, where the operator asks for it."""

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan

from gateway.generation import GenerationEvent, GenerationRequest, PreparedGeneration, ServedModel
from gateway.observation import POST_ROUTES
from grammar.errors import GrammarError, UnsupportedConstraint
from grammar.spec import Gap
from runtime.messages import Submit
from telemetry import names
from telemetry.logs import configure_logging
from tests.byte_tokenizer import byte_assets
from tests.gateway_harness import (
    CHAT,
    COMPLETIONS,
    RESPONSES,
    Gateway,
    chat,
    completion,
    in_process,
    make_gateway,
    response,
)

ASKED, ANSWERED, NAMED = "xylophone", "quokka", "marzipan"
WORDS = (ASKED, ANSWERED, NAMED)
TOOL = {
    "type": "function",
    "function": {
        "name": NAMED,
        "description": ASKED,
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {NAMED: {"enum": [ANSWERED]}},
            "required": [NAMED],
            "additionalProperties": False,
        },
    },
}
SCHEMA = TOOL["function"]["parameters"]  # type: ignore[index]
FORMAT = {"type": "json_schema", "json_schema": {"name": NAMED, "strict": True, "schema": SCHEMA}}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: chat(ASKED),
    COMPLETIONS: completion(ASKED),
    RESPONSES: response(ASKED, instructions=f"{ASKED} as well"),
    f"{CHAT}/render": chat(ASKED),
    "/apply-template": chat(ASKED),
    "/tokenize": {"prompt": ASKED},
    "/v1/tokenize": {"prompt": ASKED},
    "/detokenize": {"tokens": list(ASKED.encode())},
    "/v1/detokenize": {"tokens": list(ASKED.encode())},
    "/v1/cache/explain": chat(ASKED),
    "/v1/embeddings": {"model": "tiny", "input": ASKED},
}


class Log:
    """What goes to stderr, at any level, as it would in a server."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *, json_lines: bool) -> None:
        self._capsys = capsys
        self._json_lines = json_lines

    def start(self) -> None:
        # In the test itself: the stderr of a fixture is another one.
        configure_logging("debug", json_lines=self._json_lines)

    def text(self) -> str:
        return self._capsys.readouterr().err


@pytest.fixture(params=["text", "json"])
def log(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Iterator[Log]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield Log(capsys, json_lines=request.param == "json")
    root.handlers[:] = handlers
    root.setLevel(level)


def says(text: str) -> Callable[[Submit, int], Sequence[int]]:
    return lambda _submit, _choice: list(text.encode())


def gateway_that_says(text: str = f"A {ANSWERED}.", **settings: Any) -> Gateway:
    assets = replace(byte_assets(), max_position=2048)
    gateway = make_gateway(says(text), assets=assets, log_requests=True, **settings)
    assert gateway.engine.info is not None
    # Room for tools, of which each byte is a token.
    gateway.engine.info = msgspec.structs.replace(gateway.engine.info, max_model_len=4096)
    return gateway


class Faulty:
    """A model whose every step quotes what it was given, in an exception that nobody expects."""

    def __init__(self, model: ServedModel, *, after: int) -> None:
        self._model = model
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def prepare(self, request: GenerationRequest) -> PreparedGeneration:
        if self._after == 0:
            raise RuntimeError(f"cannot take {request.prompts}") from ValueError(ASKED)
        return await self._model.prepare(request)

    async def generate(self, prepared: PreparedGeneration) -> AsyncIterator[GenerationEvent]:
        number = 0
        async for event in self._model.generate(prepared):
            number += 1
            if number > self._after:
                raise RuntimeError(f"cannot go on with {prepared.request.prompts}, {event}")
            yield event


def told(gateway: Gateway) -> str:
    """All that the spans say."""
    return "\n".join(map(_told_by, gateway.spans.get_finished_spans()))


def _told_by(span: ReadableSpan) -> str:
    events = [(event.name, dict(event.attributes or {})) for event in span.events]
    parts = (span.name, dict(span.attributes or {}), events, span.status.description)
    return repr((*parts, dict(span.resource.attributes)))


async def post(gateway: Gateway, *calls: tuple[str, Any]) -> list[int]:
    headers = {"content-type": "application/json"}
    statuses = []
    async with in_process(gateway) as client:
        for path, body in calls:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            answer = await client.post(path, content=content, headers=headers)
            statuses.append(answer.status_code)
    return statuses


def assert_silent(gateway: Gateway, log: Log) -> str:
    logged = log.text()
    for word in WORDS:
        assert word not in told(gateway).lower(), word
        assert word not in logged.lower(), word
    assert "request finished" in logged
    return logged


def test_there_is_a_body_for_every_route_that_takes_one() -> None:
    assert set(BODIES) == POST_ROUTES


async def test_requests_that_succeed_say_nothing(log: Log) -> None:
    log.start()
    gateway = gateway_that_says()
    calls = list(BODIES.items())
    calls += [(path, {**BODIES[path], "stream": True}) for path in (CHAT, COMPLETIONS, RESPONSES)]
    statuses = await post(gateway, *calls)
    assert statuses[-3:] == [200] * 3
    assert set(statuses) == {200, 400}
    assert_silent(gateway, log)


async def test_requests_that_are_refused_say_nothing(log: Log) -> None:
    log.start()
    gateway = gateway_that_says()
    place = f"/properties/{NAMED}/enum"
    gateway.probe.error = UnsupportedConstraint(f"{NAMED}!", pointer=place, keyword="enum")
    statuses = await post(
        gateway,
        (CHAT, f'{{"messages": "{ASKED}'.encode()),
        (CHAT, chat(ASKED * 500)),
        (CHAT, chat(ASKED, temperature=ASKED)),
        (CHAT, chat([{"type": ASKED}])),
        (CHAT, chat(ASKED, response_format=FORMAT)),
        (COMPLETIONS, completion(ASKED, logit_bias={ASKED: 1})),
        (RESPONSES, response(ASKED, previous_response_id=f"resp_{ASKED}")),
        ("/detokenize", {"tokens": [ASKED]}),
    )
    assert all(400 <= status < 500 for status in statuses)
    assert_silent(gateway, log)
    assert "/properties/*/enum" in told(gateway)


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_that_break_their_constraint_say_nothing(log: Log, stream: bool) -> None:
    log.start()
    gateway = gateway_that_says(json.dumps({NAMED: f"no {ANSWERED}"}))
    (status,) = await post(gateway, (CHAT, chat(ASKED, response_format=FORMAT, stream=stream)))
    assert status == (200 if stream else 500)
    logged = assert_silent(gateway, log)
    assert "constraint_failed" in logged
    assert "/properties/*/enum" in told(gateway)


async def test_calls_that_break_their_schema_say_nothing(log: Log) -> None:
    log.start()
    call = json.dumps({"name": NAMED, "arguments": {NAMED: f"no {ANSWERED}"}})
    gateway = gateway_that_says(f"<tool_call>\n{call}\n</tool_call>")
    (status,) = await post(gateway, (CHAT, chat(ASKED, tools=[TOOL])))
    assert status == 500
    assert_silent(gateway, log)
    assert "/properties/*/enum" in told(gateway)


async def test_checked_answers_that_stay_wrong_say_nothing(
    log: Log,
) -> None:
    log.start()
    gateway = gateway_that_says(json.dumps({NAMED: f"no {ANSWERED}"}), allow_checked=True)
    gateway.probe.gaps = (Gap(f"/properties/{NAMED}/not", "not", f"{NAMED} is not enforced"),)
    (status,) = await post(gateway, (CHAT, chat(ASKED, response_format=FORMAT)))
    assert status == 400
    assert "constraint_failed" in assert_silent(gateway, log)


@pytest.mark.parametrize("after", [0, 2, 4])
@pytest.mark.parametrize("stream", [False, True])
async def test_faults_of_the_server_say_where_and_nothing_else(
    log: Log, stream: bool, after: int
) -> None:
    log.start()
    gateway = gateway_that_says(around=lambda model: Faulty(model, after=after))
    await post(gateway, (CHAT, chat(ASKED, stream=stream)))
    logged = assert_silent(gateway, log)
    assert "RuntimeError" in logged
    assert "test_trace_privacy.py" in logged


async def test_constraint_that_cannot_be_tried_out_says_nothing(
    log: Log,
) -> None:
    log.start()
    gateway = gateway_that_says()
    gateway.probe.error = GrammarError(f"the child that read {NAMED} died")
    (status,) = await post(gateway, (CHAT, chat(ASKED, response_format=FORMAT)))
    assert status == 503
    assert_silent(gateway, log)


CONTENT = {
    names.GEN_AI_INPUT_MESSAGES,
    names.GEN_AI_OUTPUT_MESSAGES,
    names.GEN_AI_SYSTEM_INSTRUCTIONS,
    names.GEN_AI_TOOL_DEFINITIONS,
}


def model_attributes(gateway: Gateway) -> dict[str, Any]:
    (span,) = (s for s in gateway.spans.get_finished_spans() if s.name.endswith(" tiny"))
    return dict(span.attributes or {})


async def test_with_trace_content_prompt_tools_and_answer_are_on_the_model_span() -> None:
    gateway = gateway_that_says(trace_content=True)
    statuses = await post(gateway, (CHAT, chat(ASKED, tools=[{**TOOL, "function": {**SIMPLE}}])))
    assert statuses == [200]
    attributes = model_attributes(gateway)
    assert json.loads(attributes[names.GEN_AI_INPUT_MESSAGES]) == [
        {"role": "user", "parts": [{"type": "text", "content": ASKED}]}
    ]
    (tool,) = json.loads(attributes[names.GEN_AI_TOOL_DEFINITIONS])
    assert tool["name"] == NAMED
    assert json.loads(attributes[names.GEN_AI_OUTPUT_MESSAGES]) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": f"A {ANSWERED}."}],
            "finish_reason": "stop",
        }
    ]


SIMPLE = {"name": NAMED, "parameters": {"type": "object", "properties": {}}}


async def test_content_is_in_its_attributes_only() -> None:
    gateway = gateway_that_says(trace_content=True)
    await post(gateway, (RESPONSES, BODIES[RESPONSES]))
    attributes = model_attributes(gateway)
    (part,) = json.loads(attributes[names.GEN_AI_SYSTEM_INSTRUCTIONS])
    assert part == {"type": "text", "content": f"{ASKED} as well"}
    rest = {key: value for key, value in attributes.items() if key not in CONTENT}
    assert CONTENT - set(attributes) == {names.GEN_AI_TOOL_DEFINITIONS}
    assert not any(word in repr(rest) for word in WORDS)


async def test_trace_that_is_not_recorded_has_no_content_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> dict[str, str]:
        raise AssertionError("content was made for nobody")

    monkeypatch.setattr("gateway.serving.request_content", fail)
    gateway = gateway_that_says(trace_content=True)
    unsampled = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-00"}
    async with in_process(gateway) as client:
        answer = await client.post(CHAT, json=chat(ASKED), headers=unsampled)
    assert (answer.status_code, gateway.spans.get_finished_spans()) == (200, ())


async def test_broken_answer_has_what_was_said_until_then() -> None:
    gateway = gateway_that_says(trace_content=True, around=lambda model: Faulty(model, after=4))
    await post(gateway, (CHAT, chat(ASKED)))
    (message,) = json.loads(model_attributes(gateway)[names.GEN_AI_OUTPUT_MESSAGES])
    assert message["finish_reason"] == "error"
    assert f"A {ANSWERED}.".startswith(message["parts"][0]["content"])
