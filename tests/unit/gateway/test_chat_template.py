"""ChatTemplate: the sandbox, and each shape of message a template can want."""

import datetime
import json
from typing import Any

import pytest

from gateway.chat_template import ChatTemplate
from gateway.errors import InvalidRequest
from runtime.errors import ModelError
from tests.byte_tokenizer import CHATML

USER: dict[str, Any] = {"role": "user", "content": "hi"}
LAST_CONTENT = "{{ messages[-1]['content'] }}"
PARTS_ONLY = (
    "{% for m in messages %}{% for part in m['content'] %}"
    "{% if part['type'] == 'text' %}[{{ part['text'] }}]{% endif %}{% endfor %}{% endfor %}"
)
TEXT_OR_PARTS = (
    "{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for part in m['content'] %}<{{ part['text'] }}>{% endfor %}{% endif %}{% endfor %}"
)
ARGUMENTS_AS_OBJECT = (
    "{% for m in messages %}{% for call in m.tool_calls or [] %}"
    "{{ call.function.name }} {{ call.function.arguments | tojson }};{% endfor %}{% endfor %}"
)
ARGUMENTS_AS_TEXT = ARGUMENTS_AS_OBJECT.replace(" | tojson", "")
CALL_PARAMETERS = (
    "{% for m in messages %}{% for call in m.tool_calls or [] %}"
    "{% for key, value in call.function.arguments | items %}<{{ key }}={{ value }}>{% endfor %}"
    "{% endfor %}{% endfor %}"
)
ONE_SYSTEM_MESSAGE = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be first') }}{% endif %}"
    "{{ m.role }}:{{ m.content }};{% endfor %}"
)


def template(source: str, **special_tokens: str) -> ChatTemplate:
    return ChatTemplate(source, special_tokens)


def calling(arguments: Any, content: str | None = None) -> dict[str, Any]:
    function = {"name": "add", "arguments": arguments}
    call = {"id": "call_1", "type": "function", "function": function}
    return {"role": "assistant", "content": content, "tool_calls": [call]}


def test_messages_are_rendered_with_the_beginning_of_the_answer() -> None:
    assert template(CHATML).render([USER]) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_beginning_of_the_answer_can_be_left_out() -> None:
    text = template(CHATML).render([USER], adds_generation_prompt=False)
    assert text == "<|im_start|>user\nhi<|im_end|>\n"


def test_special_tokens_are_known_to_the_template() -> None:
    assert template("{{ bos_token }}x", bos_token="<s>").render([USER]) == "<s>x"


def test_blocks_take_their_line_with_them_and_loops_can_be_left() -> None:
    source = (
        "{% for m in messages %}\n  {% if loop.index > 1 %}\n{% break %}\n{% endif %}\n"
        "{{ m.role }}{% endfor %}"
    )
    assert template(source).render([USER, USER]) == "user"


def test_json_is_written_without_escapes_for_html_and_other_scripts() -> None:
    source = "{{ messages[0] | tojson }}"
    message = {"role": "user", "content": "<é>"}
    assert template(source).render([message]) == '{"role": "user", "content": "<é>"}'


def test_the_date_comes_from_the_injected_clock() -> None:
    day = datetime.datetime(2026, 3, 4, tzinfo=datetime.UTC)
    dated = ChatTemplate("{{ strftime_now('%Y-%m-%d') }}", {}, now=lambda: day)
    assert dated.render([USER]) == "2026-03-04"


def test_training_marks_of_generations_are_plain_text() -> None:
    source = "{% generation %}{{ messages[0].content }}{% endgeneration %}"
    assert template(source).render([USER]) == "hi"


def test_a_template_cannot_reach_the_interpreter() -> None:
    source = "{{ messages.__class__.__mro__ }}{{ ''.__class__.__subclasses__() }}"
    with pytest.raises(InvalidRequest):
        template(source).render([USER])


def test_a_template_cannot_change_the_messages() -> None:
    messages = [dict(USER)]
    with pytest.raises(InvalidRequest):
        template("{{ messages.append(1) }}").render(messages)
    assert messages == [USER]


def test_a_broken_template_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="does not compile"):
        template("{% for %}")


def test_what_the_template_says_reaches_the_client() -> None:
    with pytest.raises(InvalidRequest, match="only users here") as caught:
        template("{{ raise_exception('only users here') }}").render([USER])
    assert (caught.value.status, caught.value.param) == (400, "messages")


def test_an_error_inside_the_template_is_the_clients_400() -> None:
    with pytest.raises(InvalidRequest, match="cannot render"):
        template("{{ messages[5].content.x.y }}").render([USER])


def test_tool_messages_do_not_crash_a_template_that_knows_none() -> None:
    history = [USER, calling("{}"), {"role": "tool", "tool_call_id": "call_1", "content": "4"}]
    text = template(CHATML).render(history)
    assert "<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>" in text


def test_the_developer_is_the_system_unless_the_template_knows_one() -> None:
    message = {"role": "developer", "content": "x"}
    assert template("{{ messages[0].role }}").render([message]) == "system"
    knowing = "{% if messages[0].role == 'developer' %}known{% endif %}"
    assert template(knowing).render([message]) == "known"


def test_text_parts_are_joined_for_a_template_that_takes_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert template(LAST_CONTENT).render([{"role": "user", "content": parts}]) == "ab"


def test_parts_stay_parts_for_a_template_that_takes_them() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    both = template(TEXT_OR_PARTS)
    assert both.render([{"role": "user", "content": parts}]) == "<a><b>"
    assert both.render([USER]) == "hi"


def test_text_becomes_a_part_for_a_template_that_takes_only_parts() -> None:
    assert template(PARTS_ONLY).render([USER]) == "[hi]"


def test_a_part_that_is_not_text_is_refused_by_its_place() -> None:
    message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    with pytest.raises(InvalidRequest) as caught:
        template(CHATML).render([USER, message])
    assert caught.value.param == "messages[1].content[0].type"
    assert caught.value.code == "unsupported_value"


@pytest.mark.parametrize("arguments", ['{"a": 1}', {"a": 1}])
@pytest.mark.parametrize("source", [ARGUMENTS_AS_OBJECT, ARGUMENTS_AS_TEXT])
def test_arguments_reach_the_template_in_the_form_it_wants(source: str, arguments: Any) -> None:
    assert template(source).render([USER, calling(arguments)]) == 'add {"a": 1};'


def test_arguments_reach_a_template_that_walks_over_them() -> None:
    assert template(CALL_PARAMETERS).render([USER, calling('{"a": 1}')]) == "<a=1>"


def test_arguments_cut_short_do_not_crash_a_template_that_wants_an_object() -> None:
    text = template(ARGUMENTS_AS_OBJECT).render([USER, calling('{"a": ')])
    assert text == 'add "{\\"a\\": ";'


@pytest.mark.parametrize("arguments", ["[" * 100_000, '{"a":' * 100_000])
def test_arguments_nested_too_deeply_stay_text(arguments: str) -> None:
    text = template(ARGUMENTS_AS_OBJECT).render([USER, calling(arguments)])
    assert text == f"add {json.dumps(arguments)};"


def test_a_null_or_missing_content_beside_tool_calls_is_empty() -> None:
    source = ARGUMENTS_AS_TEXT + "[{{ messages[-1].content }}]"
    for content in (None, ""):
        assert template(source).render([USER, calling("{}", content)]).endswith("[]")
    missing = calling("{}")
    del missing["content"]
    assert template(source).render([USER, missing]).endswith("[]")


def test_a_template_that_shows_no_tool_calls_gets_them_as_text() -> None:
    text = template(CHATML).render([USER, calling('{"a": 1}', "I add.")])
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    assert f"I add.\n{call}<|im_end|>" in text


def test_the_deprecated_function_messages_are_tool_messages() -> None:
    source = ARGUMENTS_AS_TEXT + "{{ messages[-1].role }}:{{ messages[-1].content }}"
    history = [
        USER,
        {"role": "assistant", "function_call": {"name": "add", "arguments": "{}"}},
        {"role": "function", "name": "add", "content": "4"},
    ]
    assert template(source).render(history) == "add {};tool:4"


def test_a_refusal_in_the_history_is_its_text() -> None:
    message = {"role": "assistant", "content": None, "refusal": "no"}
    assert template(LAST_CONTENT).render([USER, message]) == "no"


def test_system_messages_are_merged_in_front_where_the_template_demands_it() -> None:
    history = [
        {"role": "system", "content": "a"},
        USER,
        {"role": "developer", "content": "b"},
    ]
    assert template(ONE_SYSTEM_MESSAGE).render(history) == "system:a\n\nb;user:hi;"


def test_system_messages_stay_in_place_where_the_template_takes_them() -> None:
    history = [USER, {"role": "system", "content": "b"}]
    source = "{% for m in messages %}{{ m.content }};{% endfor %}"
    assert template(source).render(history) == "hi;b;"


def test_rendering_changes_no_message() -> None:
    message = calling('{"a": 1}')
    template(ARGUMENTS_AS_OBJECT).render([USER, message])
    assert message == calling('{"a": 1}')
