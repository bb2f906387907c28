"""The Responses API through the official Python client."""

from typing import Any

import openai
from features import MAX_TOKENS, MODEL, Checks, equal, present, raised
from openai_chat import async_client, client
from person import PERSON_QUESTION, Person
from weather import QUESTION, RESPONSES_TOOLS, RESULT, check_arguments

STABLE: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_output_tokens": MAX_TOKENS}
ASKED: dict[str, Any] = {**STABLE, "input": "hi"}
WITH_TOOLS: dict[str, Any] = {
    **STABLE,
    "input": QUESTION,
    "tools": RESPONSES_TOOLS,
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "max_output_tokens": 60,
}


def check_usage(answer: Any) -> None:
    usage = answer.usage
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0
    equal(usage.total_tokens, usage.input_tokens + usage.output_tokens)
    assert usage.input_tokens_details.cached_tokens >= 0
    equal(usage.output_tokens_details.reasoning_tokens, 0)


def add_responses(checks: Checks) -> None:
    """responses, responses stream, responses structured."""

    @checks.feature("responses")
    def responses() -> None:
        answer = client().responses.create(**ASKED)
        equal((answer.status, answer.error, answer.model), ("completed", None, MODEL))
        assert answer.id.startswith("resp_")
        assert answer.output_text
        check_usage(answer)
        chat = client().chat.completions.create(
            model=MODEL,
            temperature=0,
            max_tokens=MAX_TOKENS,
            messages=[{"role": "user", "content": "hi"}],
        )
        equal(answer.output_text, chat.choices[0].message.content)
        cut = client().responses.create(**{**ASKED, "max_output_tokens": 3})
        equal(cut.status, "incomplete")
        equal(present(cut.incomplete_details).reason, "max_output_tokens")
        error = raised(
            openai.NotFoundError, lambda: client().responses.create(**{**ASKED, "model": "nope"})
        )
        equal(error.code, "model_not_found")

    @checks.feature("responses stream")
    async def stream() -> None:
        whole = client().responses.create(**ASKED)
        async with async_client() as ours, ours.responses.stream(**ASKED) as events:
            seen = [event async for event in events]
            final = await events.get_final_response()
        equal(final.output_text, whole.output_text)
        check_usage(final)
        raw = list(client().responses.create(**ASKED, stream=True))
        equal([event.sequence_number for event in raw], list(range(len(raw))))
        equal([event.type for event in raw[:2]], ["response.created", "response.in_progress"])
        equal(raw[-1].type, "response.completed")
        deltas = [e.delta for e in raw if e.type == "response.output_text.delta"]
        equal("".join(deltas), whole.output_text)
        assert len(deltas) > 2
        equal([e.type for e in seen], [e.type for e in raw])

    @checks.feature("responses structured")
    def structured() -> None:
        asked = {**STABLE, "input": PERSON_QUESTION, "max_output_tokens": 40}
        whole = client().responses.parse(**asked, text_format=Person)
        assert isinstance(whole.output_parsed, Person)
        with client().responses.stream(**asked, text_format=Person) as events:
            final = events.until_done().get_final_response()
        equal(final.output_parsed, whole.output_parsed)


def add_kept_responses(checks: Checks) -> None:
    """responses kept: a conversation by ids, reading and deleting."""

    @checks.feature("responses kept")
    def kept() -> None:
        ours = client()
        first = ours.responses.create(**ASKED)
        second = ours.responses.create(
            **{**ASKED, "input": "And now?", "previous_response_id": first.id}
        )
        equal(second.previous_response_id, first.id)
        assert present(second.usage).input_tokens > present(first.usage).total_tokens
        equal(ours.responses.retrieve(first.id).output_text, first.output_text)
        texts = [item.content[0].text for item in ours.responses.input_items.list(first.id)]
        equal(texts, ["hi"])
        ours.responses.delete(first.id)
        error = raised(openai.NotFoundError, lambda: ours.responses.retrieve(first.id))
        equal(error.code, "response_not_found")
        unkept = ours.responses.create(**ASKED, store=False)
        raised(openai.NotFoundError, lambda: ours.responses.retrieve(unkept.id))


def add_responses_tools(checks: Checks) -> None:
    """responses tools, whole and streamed."""

    @checks.feature("responses tools")
    def tools() -> None:
        answer = client().responses.create(**WITH_TOOLS)
        (call,) = answer.output
        equal((call.type, call.status), ("function_call", "completed"))
        check_arguments(call.name, call.arguments)
        with client().responses.stream(**WITH_TOOLS) as events:
            seen = list(events)
            final = events.get_final_response()
        equal([item.type for item in final.output], ["function_call"])
        equal((final.output[0].name, final.output[0].arguments), (call.name, call.arguments))
        kind = "response.function_call_arguments"
        deltas = [event.delta for event in seen if event.type == f"{kind}.delta"]
        equal("".join(deltas), call.arguments)
        equal(
            [event.arguments for event in seen if event.type == f"{kind}.done"], ["".join(deltas)]
        )
        result = {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
        turns = [{"role": "user", "content": QUESTION}, call, result]
        text = client().responses.create(
            **{**WITH_TOOLS, "input": turns, "tool_choice": "none", "max_output_tokens": 16}
        )
        assert text.output_text
