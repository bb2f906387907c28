"""What is told of a constrained answer: headers, errors, metrics, trace; and what never is."""

from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from openai.types import CompletionUsage
from prometheus_client.parser import text_string_to_metric_families

from grammar.spec import Gap
from runtime.messages import Submit
from telemetry import names
from tests.gateway_harness import CHAT, Gateway, chat, error_of, in_process, listening, make_gateway
from tests.sse_machine import check_chat_stream

SCHEMA = {"type": "array", "contains": {"const": 5}}
GAP = Gap("/contains", "contains", "counts are not kept")


def asked(**parameters: Any) -> dict[str, Any]:
    return chat(structured_outputs={"json": SCHEMA, "allow_checked": True}, **parameters)


def gateway_of(*answers: str, gaps: tuple[Gap, ...] = (), **settings: Any) -> Gateway:
    """Its model gives the answers in turn, without the part that it goes on from."""
    left = [answer.encode() for answer in answers]

    def script(submit: Submit, _choice: int) -> Sequence[int]:
        return list(left.pop(0)[len(submit.output_prefix) :])

    gateway = make_gateway(script, **settings)
    gateway.probe.gaps = gaps
    return gateway


async def post(gateway: Gateway, body: dict[str, Any]) -> httpx2.Response:
    async with in_process(gateway) as client:
        return await client.post(CHAT, json=body)


def counted(gateway: Gateway, name: str) -> float:
    body, _ = gateway.metrics.render()
    families = text_string_to_metric_families(body.decode())
    return sum(s.value for family in families for s in family.samples if s.name == name)


def inner_span(gateway: Gateway) -> dict[str, Any]:
    (span,) = [s for s in gateway.spans.get_finished_spans() if s.name == "chat tiny"]
    return dict(span.attributes or {})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("gaps", "enforcement"), [((), "enforced"), ((GAP,), "checked")])
async def test_headers_say_what_was_done_about_the_constraint(
    stream: bool, gaps: tuple[Gap, ...], enforcement: str
) -> None:
    response = await post(gateway_of("[5]", gaps=gaps), asked(stream=stream))
    assert response.status_code == 200
    assert response.headers["x-radixgate-constraint"] == enforcement
    assert response.headers["x-radixgate-constraint-engine"] == "llguidance"


async def test_plain_text_has_no_such_headers() -> None:
    response = await post(make_gateway(), chat())
    assert [name for name in response.headers if name.startswith("x-radixgate-constraint")] == []


async def test_an_answer_that_the_mask_should_have_kept_out_is_a_500_without_its_text() -> None:
    gateway = gateway_of("[7777]")
    response = await post(gateway, asked())
    error = error_of(response)
    assert (response.status_code, error["code"]) == (500, "constraint_failed")
    assert "7777" not in response.text.replace(error["message"], "")
    assert counted(gateway, "radixgate_constraint_violations_total") == 1


async def test_a_stream_of_it_ends_in_an_error_and_never_says_that_it_is_complete() -> None:
    gateway = gateway_of("[7]")
    response = await post(gateway, asked(stream=True))
    assert response.status_code == 200
    assert '"finish_reason":"stop"' not in response.text
    assert "[DONE]" not in response.text
    assert '"code":"constraint_failed"' in response.text
    assert counted(gateway, "radixgate_constraint_violations_total") == 1


async def test_an_answer_cut_by_its_limit_is_not_judged() -> None:
    gateway = gateway_of("[7,8,9]")
    response = await post(gateway, asked(max_tokens=3))
    (choice,) = response.json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("[7,", "length")
    assert counted(gateway, "radixgate_constraint_violations_total") == 0


async def test_a_text_that_is_none_of_the_choices_is_no_answer() -> None:
    gateway = gateway_of("maybe", "yes")
    body = chat(guided_choice=["yes", "no"])
    assert (await post(gateway, body)).status_code == 500
    assert (await post(gateway, body)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_checked_answer_is_mended_before_anything_of_it_is_told(stream: bool) -> None:
    gateway = gateway_of("[7]", "[7,5]", gaps=(GAP,))
    body = asked(stream=stream, stream_options={"include_usage": True} if stream else None)
    response = await post(gateway, body)
    if stream:
        check_chat_stream(response.content, includes_usage=True)
        assert response.text.count('"content":"[7,5]"') == 1
        assert '"retried_tokens":1' in response.text
    else:
        answer = response.json()
        assert answer["choices"][0]["message"]["content"] == "[7,5]"
        usage = CompletionUsage.model_validate(answer["usage"], strict=True)
        assert usage.completion_tokens == len("[7,5]") + 1
        assert answer["usage"]["completion_tokens_details"]["retried_tokens"] == 1
    assert counted(gateway, "radixgate_constraint_retries_total") == 1
    assert counted(gateway, "radixgate_retried_tokens_total") == 1
    assert counted(gateway, "radixgate_constraint_violations_total") == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_checked_answer_that_is_never_valid_has_its_status(stream: bool) -> None:
    gateway = gateway_of("[7]", "[7,8]", "[7,8,9]", gaps=(GAP,), checked_retries=2)
    response = await post(gateway, asked(stream=stream))
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "constraint_failed")
    assert response.headers["x-radixgate-constraint"] == "checked"
    assert counted(gateway, "radixgate_constraint_retries_total") == 2
    assert counted(gateway, "radixgate_constraint_violations_total") == 0
    assert counted(gateway, "radixgate_rejected_total") == 0


async def test_nothing_but_keep_alives_is_sent_while_an_answer_is_checked() -> None:
    gateway = gateway_of("[7]", "[7,5]", gaps=(GAP,), keepalive_s=0.01)
    gateway.engine.hold("decode")
    pieces: list[str] = []
    async with listening(gateway) as base_url, httpx2.AsyncClient() as client:
        async with client.stream("POST", base_url + CHAT, json=asked(stream=True)) as response:
            async for piece in response.aiter_text():
                pieces.append(piece)
                if "ping" in piece:
                    gateway.engine.release()
    text = "".join(pieces)
    assert text.index(": ping") < text.index('"content":"[7,5]"')
    assert '"content":"["' not in text


async def test_the_trace_says_what_was_done() -> None:
    gateway = gateway_of("[7]", "[7,5]", gaps=(GAP,))
    await post(gateway, asked())
    span = inner_span(gateway)
    assert span[names.ATTR_CONSTRAINT] == "checked"
    assert span[names.ATTR_CONSTRAINT_KIND] == "json_schema"
    assert span[names.ATTR_CONSTRAINT_GAPS] == 1
    assert span[names.ATTR_GRAMMAR_ENGINE] == "llguidance"
    assert (span[names.ATTR_CONSTRAINT_RETRIES], span[names.ATTR_RETRIED_TOKENS]) == (1, 1)


async def test_constraints_are_counted_by_class_engine_and_kind() -> None:
    gateway = gateway_of("[5]", "[5]")
    async with in_process(gateway) as client:
        for _ in range(2):
            await client.post(CHAT, json=asked())
    body = gateway.metrics.render()[0].decode()
    counted_as = '{class="enforced",engine="llguidance",kind="json_schema"} 2.0'
    assert f"radixgate_constraints_total{counted_as}" in body
    assert "radixgate_grammar_compile_seconds_count 1.0" in body, "the second was known"
