"""What clients say of the cache, in the words of two APIs, and what the engine is told of it."""

from typing import Any

import pytest

from runtime.messages import CacheHints, Pin, Submit
from telemetry.names import ATTR_CACHE_KEY
from tests.byte_tokenizer import CHATML, byte_assets
from tests.gateway_harness import (
    BODIES,
    CHAT,
    COMPLETIONS,
    MODEL,
    RESPONSES,
    Gateway,
    chat,
    completion,
    error_of,
    in_process,
    make_gateway,
    response,
)
from tests.sse_machine import check_chat_stream

MARK = {"prompt_cache_breakpoint": {"mode": "explicit"}}
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}
SYSTEM, USER, ASSISTANT = "<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"
END = "<|im_end|>\n"
HALF_HOUR, FIVE_MINUTES, HOUR, DAY = 1_800.0, 300.0, 3_600.0, 86_400.0


def tokens_of(text: str) -> int:
    """A byte a token, and one for each marker of a message."""
    return len(text.replace("<|im_start|>", "\0").replace("<|im_end|>", "\0"))


async def told(path: str, body: dict[str, Any], **settings: Any) -> tuple[Submit, list[str]]:
    """What the engine is told, and what the client is told was ignored."""
    gateway = make_gateway(**settings)
    async with in_process(gateway) as client:
        answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    (submit,) = gateway.engine.submitted
    ignored = answer.headers.get("x-radixgate-ignored", "")
    return submit, ignored.split(",") if ignored else []


async def hints_of(path: str, body: dict[str, Any], **settings: Any) -> CacheHints:
    submit, ignored = await told(path, body, **settings)
    assert ignored == []
    assert submit.use_cache
    return submit.cache


@pytest.mark.parametrize("path", BODIES)
async def test_without_a_word_about_it_nothing_is_pinned(path: str) -> None:
    assert await hints_of(path, BODIES[path]()) == CacheHints()


@pytest.mark.parametrize("path", BODIES)
async def test_a_ttl_keeps_the_whole_prompt_for_that_long(path: str) -> None:
    submit, ignored = await told(path, BODIES[path](prompt_cache_options={"ttl": "30m"}))
    assert submit.cache == CacheHints(pins=(Pin(len(submit.prompt_token_ids), HALF_HOUR),))
    assert ignored == []


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("retention", "seconds"), [("24h", DAY), ("in_memory", None), ("in-memory", None)]
)
async def test_retention_of_a_day_keeps_the_whole_prompt_for_a_day(
    path: str, retention: str, seconds: float | None
) -> None:
    submit, ignored = await told(path, BODIES[path](prompt_cache_retention=retention))
    length = len(submit.prompt_token_ids)
    assert submit.cache.pins == (() if seconds is None else (Pin(length, seconds),))
    assert ignored == []


@pytest.mark.parametrize("path", BODIES)
async def test_a_key_names_the_family_and_is_on_the_trace(path: str) -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        await client.post(path, json=BODIES[path](prompt_cache_key="chat-7"))
        await client.post(path, json=BODIES[path]())
    keyed, plain = gateway.engine.submitted
    assert keyed.cache == CacheHints(key="chat-7")
    assert plain.cache == CacheHints()
    keys = [dict(span.attributes or {}).get(ATTR_CACHE_KEY) for span in inner_spans(gateway)]
    assert keys == ["chat-7", None]


def inner_spans(gateway: Gateway) -> list[Any]:
    spans = gateway.spans.get_finished_spans()
    return [span for span in spans if "gen_ai.request.model" in (span.attributes or {})]


@pytest.mark.parametrize("path", BODIES)
async def test_explicit_mode_without_a_breakpoint_keeps_out_of_the_cache(path: str) -> None:
    body = BODIES[path](prompt_cache_options={"mode": "explicit"})
    submit, ignored = await told(path, body)
    assert (submit.use_cache, submit.cache, ignored) == (False, CacheHints(), [])
    body = BODIES[path](prompt_cache_options={"mode": "explicit", "ttl": "5m"})
    _, ignored = await told(path, body)
    assert ignored == ["prompt_cache_options.ttl"]
    assert await hints_of(path, BODIES[path](prompt_cache_options={"mode": "implicit"})) == (
        CacheHints()
    )


def parts(*marks: dict[str, Any]) -> list[dict[str, Any]]:
    """Contents "a", "b", ... with these marks."""
    return [
        {"type": "text", "text": chr(ord("a") + index), **mark} for index, mark in enumerate(marks)
    ]


async def test_breakpoints_on_parts_pin_up_to_the_end_of_the_part() -> None:
    hints = await hints_of(CHAT, chat(parts(MARK, {}, EPHEMERAL)))
    start = tokens_of(USER)
    assert hints == CacheHints(pins=(Pin(start + 1, HALF_HOUR), Pin(start + 3, FIVE_MINUTES)))
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    own = {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "90s"}}
    hints = await hints_of(CHAT, chat(parts(hour, own)))
    assert hints.pins == (Pin(start + 1, HOUR), Pin(start + 2, 90.0))


async def test_cache_control_on_a_message_pins_up_to_its_end() -> None:
    messages = [
        {"role": "system", "content": "Be brief.", **EPHEMERAL},
        {"role": "user", "content": "hi"},
    ]
    hints = await hints_of(CHAT, {"model": MODEL, "messages": messages})
    assert hints.pins == (Pin(tokens_of(f"{SYSTEM}Be brief."), FIVE_MINUTES),)


async def test_explicit_mode_leaves_nothing_behind_the_last_breakpoint() -> None:
    options = {"mode": "explicit", "ttl": "12h"}
    hints = await hints_of(CHAT, chat(parts(MARK, EPHEMERAL, {}), prompt_cache_options=options))
    start = tokens_of(USER)
    assert hints.keep_len == start + 2
    assert hints.pins == (Pin(start + 1, 12 * HOUR), Pin(start + 2, 12 * HOUR))


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_cache_control_on_a_tool_pins_all_tools(path: str) -> None:
    function = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    flat = path == RESPONSES
    tool = {"type": "function", **(function if flat else {"function": function}), **EPHEMERAL}
    template = "{{ tools | tojson }}{% for message in messages %}{{ message.content }}{% endfor %}"
    submit, ignored = await told(
        path, BODIES[path](tools=[tool]), assets=byte_assets(chat_template=template)
    )
    text = bytes(token if token < 256 else 0 for token in submit.prompt_token_ids)
    assert text.startswith(b'[{"type": "function", "function": {"name": "f"')
    assert b"ephemeral" not in text
    assert submit.cache.pins == (Pin(text.index(b"hi"), FIVE_MINUTES),)
    assert ignored == []


@pytest.mark.parametrize("mark", [MARK, EPHEMERAL])
async def test_templates_see_nothing_of_it(mark: dict[str, Any]) -> None:
    template = "{{ messages | tojson }}"
    message = {"role": "user", "content": parts(mark), **EPHEMERAL}
    body = {"model": MODEL, "messages": [message]}
    submit, ignored = await told(CHAT, body, assets=byte_assets(chat_template=template))
    said = bytes(submit.prompt_token_ids)
    assert b'"role": "user"' in said
    assert b"cache" not in said
    assert b"ephemeral" not in said


async def test_items_of_a_response_take_breakpoints_too() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    given = [
        {"role": "user", "content": [{"type": "input_text", "text": "aa", **MARK}]},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "b", **EPHEMERAL},
                {"type": "input_text", "text": "c"},
            ],
        },
        call,
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_text", "text": "dd", **MARK}],
        },
        {"role": "user", "content": "e", **EPHEMERAL},
    ]
    body = response(given, instructions="Go.")
    template = "{% for message in messages %}{{ message.content }};{% endfor %}"
    submit, ignored = await told(RESPONSES, body, assets=byte_assets(chat_template=template))
    text = bytes(token if token < 256 else 0 for token in submit.prompt_token_ids).decode()
    assert [(text[: pin.num_tokens][-2:], pin.ttl_s) for pin in submit.cache.pins] == [
        ("aa", HALF_HOUR),
        (";b", FIVE_MINUTES),
        ("dd", HALF_HOUR),
        (";e", FIVE_MINUTES),
    ]
    assert ignored == []


async def test_breakpoints_stay_with_their_messages_when_a_response_is_shortened() -> None:
    given = [
        {"role": "user", "content": "x" * 100, **EPHEMERAL},
        {"role": "user", "content": "kept", **EPHEMERAL},
    ]
    body = response(given, truncation="auto", max_output_tokens=5)
    hints = await hints_of(RESPONSES, body)
    assert hints.pins == (Pin(tokens_of(f"{USER}kept"), FIVE_MINUTES),)
    explicit = body | {"prompt_cache_options": {"mode": "explicit"}}
    explicit["input"] = [given[0], {"role": "user", "content": "kept"}]
    submit, _ = await told(RESPONSES, explicit)
    assert not submit.use_cache, "the only breakpoint is gone with its message"


async def test_at_most_four_pins_are_taken_the_longest() -> None:
    submit, ignored = await told(CHAT, chat(parts(*[EPHEMERAL] * 6)))
    start = tokens_of(USER)
    assert [pin.num_tokens for pin in submit.cache.pins] == [start + n for n in (3, 4, 5, 6)]
    assert ignored == ["messages.content.cache_control"]


async def test_a_place_that_the_template_hides_is_no_error_and_named() -> None:
    hiding = CHATML.replace("message['content']", "message['content'] | upper")
    submit, ignored = await told(CHAT, chat(parts(MARK)), assets=byte_assets(chat_template=hiding))
    assert submit.cache.pins == ()
    assert ignored == ["messages.content.prompt_cache_breakpoint"]


@pytest.mark.parametrize("path", BODIES)
async def test_what_has_no_effect_without_the_cache_is_named(path: str) -> None:
    body = BODIES[path](
        cache_prompt=False, prompt_cache_options={"ttl": "5m"}, prompt_cache_retention="24h"
    )
    submit, ignored = await told(path, body)
    assert not submit.use_cache
    assert ignored == ["prompt_cache_options.ttl", "prompt_cache_retention"]


async def test_the_server_bounds_every_time() -> None:
    body = chat(parts(MARK), prompt_cache_options={"ttl": "24h"}, prompt_cache_retention="24h")
    hints = await hints_of(CHAT, body, cache_max_ttl_s=60)
    assert {pin.ttl_s for pin in hints.pins} == {60.0}


@pytest.mark.parametrize("settings", [{"cache_max_ttl_s": 0}, {"cache_pin_share": 0}])
async def test_a_server_that_keeps_nothing_longer_says_so(settings: dict[str, Any]) -> None:
    submit, ignored = await told(CHAT, chat(prompt_cache_options={"ttl": "5m"}), **settings)
    assert submit.cache.pins == ()
    assert ignored == ["prompt_cache_options.ttl"]


async def test_each_prompt_of_a_completion_is_kept() -> None:
    gateway = make_gateway()
    body = completion(
        [[1, 2, 3], [4, 5]], prompt_cache_key="k", prompt_cache_options={"ttl": "1.5m"}
    )
    async with in_process(gateway) as client:
        assert (await client.post(COMPLETIONS, json=body)).status_code == 200
    hints = [submit.cache for submit in gateway.engine.submitted]
    assert hints == [
        CacheHints(key="k", pins=(Pin(3, 90.0),)),
        CacheHints(key="k.1", pins=(Pin(2, 90.0),)),
    ]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (chat(prompt_cache_key=""), "prompt_cache_key"),
        (chat(prompt_cache_key="x" * 65), "prompt_cache_key"),
        (chat(prompt_cache_key=5), "prompt_cache_key"),
        (chat(prompt_cache_retention="12h"), "prompt_cache_retention"),
        (chat(prompt_cache_options="5m"), "prompt_cache_options"),
        (chat(prompt_cache_options={"mode": "automatic"}), "prompt_cache_options.mode"),
        *(
            (chat(prompt_cache_options={"ttl": ttl}), "prompt_cache_options.ttl")
            for ttl in ("5", "m", "5 m", "5d", "-5m", "0s", "0.0m", "1e3s", "", 300, "9" * 10 + "s")
        ),
        (
            chat(parts({"prompt_cache_breakpoint": {}})),
            "messages[0].content[0].prompt_cache_breakpoint.mode",
        ),
        (
            chat(parts({"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "x"}})),
            "messages[0].content[0].prompt_cache_breakpoint.ttl",
        ),
        (
            chat(parts({"cache_control": {"type": "persistent"}})),
            "messages[0].content[0].cache_control.type",
        ),
        (
            chat(parts({"cache_control": {"type": "ephemeral", "ttl": "soon"}})),
            "messages[0].content[0].cache_control.ttl",
        ),
    ],
)
async def test_what_cannot_be_read_is_a_400_that_names_it(body: dict[str, Any], param: str) -> None:
    async with in_process(make_gateway()) as client:
        answer = await client.post(CHAT, json=body)
    assert (answer.status_code, error_of(answer)["param"]) == (400, param)


async def test_input_that_cannot_be_read_is_named_as_the_client_wrote_it() -> None:
    part = {"type": "input_text", "text": "a", "cache_control": {"type": "x"}}
    async with in_process(make_gateway()) as client:
        answer = await client.post(RESPONSES, json=response([{"role": "user", "content": [part]}]))
    assert error_of(answer)["param"] == "input[0].content[0].cache_control.type"


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("cached", [0, 5])
async def test_usage_always_says_what_was_read_and_written(path: str, cached: int) -> None:
    gateway = make_gateway()
    gateway.engine.cached_tokens = cached
    async with in_process(gateway) as client:
        plain = (await client.post(path, json=BODIES[path]())).json()["usage"]
        without = (await client.post(path, json=BODIES[path](cache_prompt=False))).json()["usage"]
    side = "input" if path == RESPONSES else "prompt"
    cached = min(cached, plain[f"{side}_tokens"] - 1)
    details = plain[f"{side}_tokens_details"]
    assert details["cached_tokens"] == cached
    assert details["cache_write_tokens"] == plain[f"{side}_tokens"] - cached
    assert without[f"{side}_tokens_details"]["cache_write_tokens"] == 0


async def test_a_stream_says_the_same_and_so_does_an_answer_that_a_stop_string_ends() -> None:
    gateway = make_gateway()
    gateway.engine.cached_tokens = 5
    async with in_process(gateway) as client:
        whole = (await client.post(CHAT, json=chat())).json()["usage"]
        options = {"stream": True, "stream_options": {"include_usage": True}}
        stream = await client.post(CHAT, json=chat(**options))
        stopped = await client.post(CHAT, json=chat(stop="w"))
    assert check_chat_stream(stream.content, includes_usage=True).usage == whole
    assert gateway.engine.aborted, "the gateway ended the answer, not the engine"
    details = whole["prompt_tokens_details"]
    assert stopped.json()["usage"]["prompt_tokens_details"] == details
    assert details["cache_write_tokens"] == whole["prompt_tokens"] - 5


async def test_explicit_usage_counts_what_stays() -> None:
    gateway = make_gateway()
    body = chat(parts(MARK, {}), prompt_cache_options={"mode": "explicit"})
    async with in_process(gateway) as client:
        usage = (await client.post(CHAT, json=body)).json()["usage"]
    assert usage["prompt_tokens_details"]["cache_write_tokens"] == tokens_of(USER) + 1


async def test_every_kind_of_item_of_a_response_can_be_marked() -> None:
    """A call and what was thought before it end with the message that they become."""
    template = (
        "{% for message in messages %}{{ message.content }}"
        "{% for call in message.tool_calls or [] %}[{{ call.function.name }}]{% endfor %};"
        "{% endfor %}"
    )
    so = {"type": "reasoning_text", "text": "so"}
    thought = {"type": "reasoning", "content": [so]}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "done"}
    said = {"role": "assistant", "content": "well"}
    ends = []
    for marked in (
        [thought, {**said, **EPHEMERAL}, call, output],
        [{**thought, **EPHEMERAL}, said, call, output],
        [{**thought, "content": [{**so, **EPHEMERAL}]}, said, call, output],
        [thought, said, {**call, **EPHEMERAL}, output],
    ):
        body = response([{"role": "user", "content": "hi"}, *marked])
        submit, ignored = await told(RESPONSES, body, assets=byte_assets(chat_template=template))
        assert ignored == []
        ends += [pin.num_tokens for pin in submit.cache.pins]
    assert len(ends) == 4
    assert len(set(ends)) == 1


@pytest.mark.parametrize("kind", ["function_call", "reasoning", "item_reference"])
async def test_a_mark_on_any_kind_of_item_is_checked(kind: str) -> None:
    item = {"type": kind, "id": "x", "call_id": "c", "name": "f", "arguments": "{}"}
    body = response([{**item, "cache_control": {"type": "eternal"}}])
    async with in_process(make_gateway()) as client:
        answer = await client.post(RESPONSES, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input[0].cache_control.type"
