"""From items to the messages of a chat, and what is left out of a conversation that is too long."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.conversation import (
    MAX_INLINE_ITEMS,
    Conversation,
    max_dropped,
    shortened,
)
from gateway.errors import InvalidRequest
from gateway.schemas.response_items import (
    CallItem,
    CallOutputItem,
    InputText,
    Item,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    Refusal,
    Role,
)


def said(role: Role, *texts: str) -> MessageItem:
    part = OutputText if role == "assistant" else InputText
    return MessageItem("msg", "completed", role, [part(text) for text in texts])


def called(call_id: str) -> CallItem:
    return CallItem("fc", "completed", call_id, "f", "{}")


def result(call_id: str, output: Any = "ok") -> CallOutputItem:
    return CallOutputItem("fco", "completed", call_id, output)


def thought(text: str) -> ReasoningItem:
    return ReasoningItem("rs", "completed", content=[ReasoningText(text)])


def chat_messages(
    items: list[Item], *, instructions: str | None = None
) -> tuple[dict[str, Any], ...]:
    return Conversation(tuple(items), instructions=instructions).prompt().messages


def call_dict(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_instructions_come_first() -> None:
    messages = chat_messages([said("user", "hi")], instructions="Be brief.")
    assert messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    )


def test_what_a_model_said_in_one_go_is_one_message() -> None:
    items: list[Item] = [
        said("user", "?"),
        thought("hm"),
        said("assistant", "I look."),
        called("a"),
        called("b"),
    ]
    assert chat_messages(items)[1:] == (
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "hm",
            "tool_calls": [call_dict("a"), call_dict("b")],
        },
    )


def test_a_second_answer_is_a_second_message() -> None:
    items: list[Item] = [
        said("assistant", "a"),
        said("assistant", "b"),
        called("x"),
        thought("c"),
        called("y"),
    ]
    first, second, third = chat_messages(items)
    assert (first["content"], second["content"]) == ("a", "b")
    assert second["tool_calls"] == [call_dict("x")]
    assert third == {
        "role": "assistant",
        "reasoning_content": "c",
        "tool_calls": [call_dict("y")],
    }


def test_thoughts_that_led_to_nothing_are_left_out() -> None:
    assert chat_messages([thought("hm"), said("user", "?")]) == ({"role": "user", "content": "?"},)


def test_results_are_tool_messages() -> None:
    parts = [InputText("a"), InputText("b")]
    messages = chat_messages([called("x"), result("x"), result("y", parts), result("z", parts[:1])])
    assert messages[1:] == (
        {"role": "tool", "tool_call_id": "x", "content": "ok"},
        {
            "role": "tool",
            "tool_call_id": "y",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        },
        {"role": "tool", "tool_call_id": "z", "content": "a"},
    )


def test_a_refusal_stays_one() -> None:
    item = MessageItem("msg", "completed", "assistant", [Refusal("no")])
    assert chat_messages([item])[0]["content"] == [{"type": "refusal", "refusal": "no"}]


def test_an_empty_answer_is_an_empty_text() -> None:
    assert chat_messages([said("assistant")]) == ({"role": "assistant", "content": ""},)


def test_a_conversation_in_which_nobody_speaks_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        Conversation((thought("hm"),)).prompt()
    assert (caught.value.code, caught.value.param) == ("empty_array", "input")


async def test_a_long_conversation_is_the_same_prompt_made_aside() -> None:
    long = Conversation(tuple(said("user", str(i)) for i in range(MAX_INLINE_ITEMS + 1)))
    assert await long.prompt_aside(5) == long.prompt(5)
    with pytest.raises(InvalidRequest):
        await Conversation((thought("hm"),) * (MAX_INLINE_ITEMS + 1)).prompt_aside()


def test_the_oldest_go_first_and_system_messages_stay() -> None:
    items: list[Item] = [
        said("system", "s"),
        said("user", "1"),
        said("assistant", "2"),
        said("user", "3"),
    ]
    assert shortened(items, 0) == tuple(items)
    assert shortened(items, 2) == (items[0], items[3])


def test_what_is_left_begins_with_the_user() -> None:
    items: list[Item] = [
        said("user", "1"),
        said("assistant", "2"),
        said("user", "3"),
        said("assistant", "4"),
    ]
    assert shortened(items, 1) == tuple(items[2:])


def test_where_the_user_has_no_word_later_the_cut_is_where_it_was_asked_for() -> None:
    items: list[Item] = [said("user", "1"), called("a"), result("a"), called("b"), result("b")]
    assert shortened(items, 1) == tuple(items[1:])
    assert shortened(items, 2) == tuple(items[3:])


def test_the_last_results_keep_all_their_calls() -> None:
    items: list[Item] = [said("user", "1"), called("a"), called("b"), result("a"), result("b")]
    assert max_dropped(items) == 1
    assert max_dropped([*items, said("user", "2")]) == 5


def test_a_result_of_an_unknown_call_is_no_reason_to_keep_anything() -> None:
    assert max_dropped([said("user", "1"), said("user", "2"), result("?")]) == 2


items = st.lists(
    st.one_of(
        st.builds(
            said, st.sampled_from(["user", "assistant", "system", "developer"]), st.just("x")
        ),
        st.builds(called, st.sampled_from("abc")),
        st.builds(result, st.sampled_from("abcd")),
        st.just(thought("t")),
    ),
    min_size=1,
    max_size=14,
)


@settings(derandomize=True, max_examples=150)
@given(items, st.data())
def test_no_result_loses_its_call_and_the_end_stays(conversation: list[Item], data: Any) -> None:
    limit = max_dropped(conversation)
    num_dropped = data.draw(st.integers(0, limit))
    left = shortened(conversation, num_dropped)
    had_call = {item.call_id for item in conversation if isinstance(item, CallItem)}
    has_call = {item.call_id for item in left if isinstance(item, CallItem)}
    for item in left:
        if isinstance(item, CallOutputItem) and item.call_id in had_call:
            assert item.call_id in has_call
    systems = [item for item in conversation if _is_system(item)]
    assert [item for item in left if _is_system(item)] == systems
    assert left[-1:] == tuple(conversation[-1:]) or _is_system(conversation[-1])
    assert len(shortened(conversation, limit)) <= len(left)
    iterator = iter(conversation)
    assert all(any(item is other for other in iterator) for item in left), "the order changed"


def _is_system(item: Item) -> bool:
    return isinstance(item, MessageItem) and item.role in ("system", "developer")
