"""Tools and what was called before, in templates of every family: nothing of it is lost."""

import json
from typing import Any

import pytest

from gateway.chat_template import ChatTemplate
from gateway.errors import InvalidRequest
from gateway.message_shapes import TemplateTraits
from gateway.tools.dialect import Dialect
from gateway.tools.families import LLAMA3_JSON, PYTHONIC
from runtime.model_source import open_model
from tests.fetch_models import QWEN2_CODER
from tests.model_file import default_model_path, needs_model
from tests.tool_templates import CHATML, GEMMA, HERMES, ITEMS, LLAMA, MISTRAL, PARTS, PHI, TEMPLATES

USER = {"role": "user", "content": "Weather?"}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
LONG_ID = "call_0123456789abcdefghijABCD"


def template(source: str, dialect: Dialect | None = None) -> ChatTemplate:
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    return ChatTemplate(source, special, dialect=dialect)


def call(arguments: Any = '{"city": "Paris"}', call_id: str | None = LONG_ID) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def calling(*calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": list(calls) or [call()], **fields}


def result(content: Any = "sunny", call_id: str = LONG_ID) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": call_id}


PARTS_OF_RESULT = [{"type": "text", "text": "sun"}, {"type": "text", "text": "ny"}]
SYSTEM, DEVELOPER = ({"role": role, "content": "Be brief."} for role in ("system", "developer"))
# Each a conversation that real agents send, and what of it the prompt must have.
HISTORIES: dict[str, tuple[list[dict[str, Any]], tuple[str, ...]]] = {
    "content null": ([USER, calling(content=None), result()], ("Paris", "sunny")),
    "content missing": ([USER, calling(), result()], ("Paris", "sunny")),
    "content empty": ([USER, calling(content=""), result()], ("Paris", "sunny")),
    "arguments broken": ([USER, calling(call('{"city": "Par')), result()], ("Par", "sunny")),
    "arguments a list": ([USER, calling(call('["Paris"]')), result()], ("Paris", "sunny")),
    "arguments null": ([USER, calling(call(None)), result()], ("get_weather", "sunny")),
    "arguments empty": ([USER, calling(call("")), result()], ("get_weather", "sunny")),
    "arguments an object": ([USER, calling(call({"city": "Paris"})), result()], ("Paris",)),
    "several results": (
        [USER, calling(call(), call('{"city": "Rome"}', "b")), result(), result("rain", "b")],
        ("Paris", "Rome", "sunny", "rain"),
    ),
    "unknown id": ([USER, calling(), result("sunny", "other")], ("Paris", "sunny")),
    "result before any call": ([USER, result(), calling(), result("rain")], ("sunny", "rain")),
    "result first": ([result(), USER], ("sunny", "Weather?")),
    "result in parts": ([USER, calling(), result(PARTS_OF_RESULT)], ("sunny",)),
    "result empty": ([USER, calling(), result("")], ("Paris",)),
    "no id": ([USER, calling(call(call_id=None)), result()], ("Paris", "sunny")),
    "developer": ([DEVELOPER, USER, calling(), result()], ("Be brief.", "Paris", "sunny")),
    "system in the middle": ([USER, calling(), result(), SYSTEM, USER], ("Be brief.", "sunny")),
    "assistant twice": (
        [USER, {"role": "assistant", "content": "One."}, {"role": "assistant", "content": "Two."}],
        ("One.", "Two."),
    ),
    "user twice": ([USER, {"role": "user", "content": "Now!"}], ("Weather?", "Now!")),
    "calls twice": ([USER, calling(), calling(call(call_id="b")), result()], ("Paris", "sunny")),
    "deprecated": (
        [
            USER,
            {"role": "assistant", "function_call": {"name": "f", "arguments": '{"a": 1}'}},
            {"role": "function", "name": "f", "content": "sunny"},
        ],
        ("f", "sunny"),
    ),
    "text and calls": (
        [USER, calling(content="Let me see."), result(), USER],
        ("Let me see.", "Paris"),
    ),
}


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("name", TEMPLATES)
def test_what_agents_send_is_rendered_whole(name: str, history: str) -> None:
    messages, texts = HISTORIES[history]
    shown = template(TEMPLATES[name]).render(messages, tools=[TOOL])
    assert [text for text in (*texts, "get_weather") if text not in shown] == []


@pytest.mark.parametrize(
    ("source", "traits"),
    [
        (HERMES, TemplateTraits(tool_arguments="object", tools="variable", takes_results=True)),
        (
            LLAMA,
            TemplateTraits(
                tool_arguments="object", tools="variable", takes_results=True,
                takes_text_and_calls=False,
            ),
        ),
        (
            MISTRAL,
            TemplateTraits(
                tool_arguments="object", tools="variable", takes_results=True, takes_any_id=False,
                takes_text_and_calls=False,
            ),
        ),
        (TEMPLATES["granite"],
         TemplateTraits(tool_arguments="text", tools="variable", takes_results=True)),
        (PHI, TemplateTraits(tools="system")),
        (GEMMA, TemplateTraits()),
        (CHATML, TemplateTraits()),
        (ITEMS, TemplateTraits(tool_arguments="object", tools="variable", takes_results=True)),
        (
            PARTS,
            TemplateTraits(
                takes_text=False, takes_parts=True, tool_arguments="object", tools="variable",
                takes_results=True,
            ),
        ),
    ],
)  # fmt: skip
def test_what_a_template_takes_is_found_by_trying(source: str, traits: TemplateTraits) -> None:
    assert template(source).traits == traits


@pytest.mark.parametrize(
    ("source", "dialect"),
    [
        (HERMES, "hermes"),
        (LLAMA, "llama3_json"),
        (MISTRAL, "mistral"),
        (TEMPLATES["granite"], "granite"),
        (PHI, "phi"),
        (GEMMA, "hermes"),
        (CHATML, "hermes"),
    ],
)
def test_the_dialect_is_that_of_the_template(source: str, dialect: str) -> None:
    assert template(source).dialect.name == dialect


def test_a_template_shows_tools_in_its_own_way() -> None:
    shown = template(HERMES).render([USER], tools=[TOOL])
    assert shown == (
        f"<|im_start|>system\nTools:\n{json.dumps(TOOL)}\n"
        "Call them as <tool_call>json</tool_call><|im_end|>\n"
        "<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert "get_weather" not in template(HERMES).render([USER])


def test_tools_stand_beside_the_system_where_the_template_wants_them_there() -> None:
    shown = template(PHI).render([USER], tools=[TOOL])
    functions = json.dumps([TOOL["function"]])
    assert shown == (
        f"<|system|><|tool|>{functions}<|/tool|><|end|><|user|>Weather?<|end|><|assistant|>"
    )
    assert template(PHI).render([SYSTEM, USER], tools=[TOOL]).startswith("<|system|>Be brief.<|t")


def test_tools_are_described_where_the_template_does_not_show_them() -> None:
    shown = template(CHATML).render([SYSTEM, USER], tools=[TOOL])
    system, user, _ = shown.split("<|im_end|>\n")
    assert system.startswith("<|im_start|>system\nBe brief.\n\nYou can call functions.")
    assert f"\n{json.dumps(TOOL['function'])}\n" in system
    assert '<tool_call>\n{"name": "function_name", "arguments": {' in system
    assert user == "<|im_start|>user\nWeather?"
    alone = template(CHATML).render([USER], tools=[TOOL])
    assert alone.startswith("<|im_start|>system\nYou can call functions.")


def test_a_description_shows_the_dialect_that_was_set() -> None:
    shown = template(CHATML, PYTHONIC).render([USER, calling(), result()], tools=[TOOL])
    assert '[function_name(parameter_name="value")]' in shown
    assert '<|im_start|>assistant\n[get_weather(city="Paris")]<|im_end|>' in shown


def test_calls_as_text_are_what_the_model_wrote() -> None:
    written = '{"city":  "Paris", "days":1.50}'
    history = [USER, calling(call(written), content="Let me see."), result("a"), result("b")]
    assert template(CHATML).render(history, adds_generation_prompt=False) == (
        "<|im_start|>user\nWeather?<|im_end|>\n"
        "<|im_start|>assistant\nLet me see.\n<tool_call>\n"
        f'{{"name": "get_weather", "arguments": {written}}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\na\n</tool_response>\n"
        "<tool_response>\nb\n</tool_response><|im_end|>\n"
    )


@pytest.mark.parametrize("source", [HERMES, LLAMA])
def test_an_object_is_written_as_the_model_wrote_it(source: str) -> None:
    written = '{"city":  "Paris","days":1.50}'
    assert f": {written}}}" in template(source).render([USER, calling(call(written)), result()])


def test_ids_are_those_that_the_template_demands_and_stay_together() -> None:
    history = [
        USER,
        calling(call(), call(call_id="abcDEF123"), call(call_id=None)),
        result("a"),
        result("b", "abcDEF123"),
        {"role": "function", "name": "get_weather", "content": "c"},
    ]
    shown = template(MISTRAL).render(history)
    ids = [part[:9] for part in shown.split('"id": "')[1:]]
    answered = [part[:9] for part in shown.split('"call_id": "')[1:]]
    assert ids == answered
    assert ids[1] == "abcDEF123"
    assert len(set(ids)) == 3
    assert all(one.isalnum() and one.isascii() for one in ids)
    assert shown == template(MISTRAL).render([*history])


def test_what_a_template_takes_is_left_as_it_is() -> None:
    assert f'"id": "{LONG_ID}"' not in template(MISTRAL).render([USER, calling(), result()])
    source = HERMES + "{{ messages | map(attribute='tool_call_id') | join }}"
    assert template(source).render([USER, calling(), result()]).endswith(LONG_ID)


def test_several_calls_become_several_messages_where_only_one_is_taken() -> None:
    history = [USER, calling(call(), call('{"city": "Rome"}')), result("a"), result("b")]
    shown = template(LLAMA).render(history)
    assert shown.count('{"name": "get_weather", "parameters": ') == 2
    assert shown.index("Paris") < shown.index("Rome") < shown.index('"a"') < shown.index('"b"')


def test_arguments_that_are_no_object_are_wrapped_only_where_it_must_be() -> None:
    history = [USER, calling(call('{"city": "Par')), result()]
    assert '<parameter=arguments>{"city": "Par</parameter>' in template(ITEMS).render(history)
    assert '"arguments": "{\\"city\\": \\"Par"}' in template(HERMES).render(history)


def test_words_of_the_system_go_to_the_user_where_there_is_no_system() -> None:
    shown = template(GEMMA).render([SYSTEM, USER, calling(), result(), USER], tools=[TOOL])
    assert shown.startswith("<start_of_turn>user\nBe brief.\n\nYou can call functions.")
    assert "<tool_response>\nsunny\n</tool_response>\n\nWeather?<end_of_turn>" in shown
    assert shown.count("<start_of_turn>") == 4


def test_what_no_change_makes_renderable_is_refused_with_the_first_reason() -> None:
    source = "{{ raise_exception('no ' + messages[0].role) }}"
    with pytest.raises(InvalidRequest, match="no system"):
        template(source).render([SYSTEM, USER, USER])


def test_options_are_variables_and_cannot_replace_what_the_server_says() -> None:
    source = (
        "{{ mode }}{{ messages | length }}{{ bos_token }}{{ tools }}{{ add_generation_prompt }}"
    )
    options = {"mode": "fast", "messages": [], "bos_token": "x", "tools": "y"}
    options["add_generation_prompt"] = "z"
    assert template(source).render([USER], options=options) == "fast1<s>NoneTrue"


@pytest.mark.parametrize("content", ["Sure", "  Sure \n", "", "<think>\nhm"])
@pytest.mark.parametrize("source", [HERMES, CHATML, GEMMA, MISTRAL, LLAMA])
def test_a_prompt_may_end_inside_the_last_message(source: str, content: str) -> None:
    history = [USER, {"role": "assistant", "content": content}]
    shown = template(source).render(history, continues_last=True)
    assert shown.endswith(content)
    assert not shown.endswith(("<|im_end|>\n", "<end_of_turn>\n", "</s>"))
    whole = template(source).render(history, adds_generation_prompt=False)
    assert whole.startswith(shown.removesuffix(content))


def test_a_message_in_parts_is_continued_at_its_end() -> None:
    parts = [{"type": "text", "text": "a "}, {"type": "text", "text": "b "}]
    last = {"role": "assistant", "content": parts}
    assert template(PARTS).render([USER, last], continues_last=True).endswith("<|assistant|>a b ")
    empty = {"role": "assistant", "content": ""}
    assert template(PARTS).render([USER, empty], continues_last=True).endswith("<|assistant|>")


def test_what_a_template_says_before_a_content_it_takes_apart_is_kept() -> None:
    source = (
        "{% for m in messages %}{% if '</think>' in m.content %}"
        "{{ '<' + m.content.split('</think>')[-1] + '>' }}{% else %}{{ m.content }}{% endif %}"
        "{% endfor %}"
    )
    last = {"role": "assistant", "content": "<think>a</think>b"}
    assert template(source).render([USER, last], continues_last=True) == "Weather?<b"


@pytest.mark.parametrize(
    ("source", "last"),
    [
        (HERMES, calling(content="x")),
        ("{{ messages[0].content }}", {"role": "assistant", "content": "x"}),
        ("{{ messages[-1].content * 2 }}", {"role": "assistant", "content": "x"}),
    ],
)
def test_what_cannot_be_continued_is_refused(source: str, last: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        template(source).render([USER, last], continues_last=True)
    assert caught.value.param == "continue_final_message"


@needs_model
def test_the_default_model_is_told_of_tools_and_results() -> None:
    assets = open_model(default_model_path()).text
    smollm = ChatTemplate(assets.chat_template or "", assets.special_tokens)
    assert smollm.traits == TemplateTraits()
    for messages, texts in HISTORIES.values():
        shown = smollm.render(messages, tools=[TOOL])
        assert [text for text in (*texts, "get_weather") if text not in shown] == []


@pytest.mark.skipif(not QWEN2_CODER.path.is_file(), reason="needs `make test-models`'s files")
def test_qwen_shows_tools_and_calls_as_it_was_trained_to() -> None:
    assets = open_model(QWEN2_CODER.path).text
    qwen = ChatTemplate(assets.chat_template or "", assets.special_tokens)
    assert qwen.traits == TemplateTraits(
        tool_arguments="object", tools="variable", takes_results=True
    )
    assert qwen.dialect.name == "hermes"
    for messages, texts in HISTORIES.values():
        shown = qwen.render(messages, tools=[TOOL])
        assert [text for text in (*texts, "get_weather") if text not in shown] == []
    written = '{"city":"Paris"}'
    shown = qwen.render([USER, calling(call(written)), result()], tools=[TOOL])
    block = qwen.dialect.block([("get_weather", written)])
    assert f"<|im_start|>assistant\n{block}<|im_end|>\n" in shown


def test_a_dialect_can_be_set_for_any_template() -> None:
    shown = template(CHATML, LLAMA3_JSON).render([USER, calling(content="Hm."), result()])
    assert 'Hm.\n{"name": "get_weather", "parameters": {"city": "Paris"}}<|im_end|>' in shown
