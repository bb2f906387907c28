"""Scripts of the kinds: the same for the same seed, of the sizes that were asked for."""

import json
from typing import Any

import pytest

from telemetry.workloads import (
    Agent,
    Conversation,
    MultiTurn,
    PrefixRepetition,
    Requests,
    Script,
    Workload,
    make_scripts,
    num_users,
)

REPETITION = PrefixRepetition(
    version=1,
    groups=3,
    prompts_per_group=4,
    prefix_tokens=20,
    suffix_tokens=5,
    output_tokens=7,
)
CHATS = MultiTurn(
    version=1, users=2, turns=3, system_tokens=12, user_tokens=6, output_tokens=4, think_time_s=0.5
)
AGENTS = Agent(
    version=1,
    agents=2,
    calls=2,
    system_tokens=10,
    tools=3,
    tool_tokens=80,
    task_tokens=8,
    call_tokens=4,
    result_tokens=9,
    output_tokens=5,
)
GIVEN = Requests(
    version=1,
    file="f",
    bodies=({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "model": "x"},),
)


def bodies_of(script: Script) -> list[dict[str, Any]]:
    """All bodies, where the model always answers OK."""
    conversation, bodies = Conversation(script), []
    while not conversation.is_over:
        bodies.append(conversation.next_body("m"))
        conversation.add_answer("OK")
    return bodies


def words(message: dict[str, Any]) -> int:
    return len(message["content"].split())


@pytest.mark.parametrize("workload", [REPETITION, CHATS, AGENTS])
def test_every_word_follows_from_the_seed(workload: Workload) -> None:
    once, again, other = (make_scripts(workload, seed=seed) for seed in (1, 1, 2))
    assert once == again == make_scripts(workload)
    assert [script for script in once if script in other] == []


def test_prefixes_are_repeated_and_suffixes_are_not() -> None:
    bodies = [body for script in make_scripts(REPETITION) for body in bodies_of(script)]
    pairs = [(body["messages"][0], body["messages"][1]) for body in bodies]
    prefixes = [system["content"] for system, _ in pairs]
    assert len(bodies) == len({question["content"] for _, question in pairs}) == 12
    assert sorted(prefixes.count(prefix) for prefix in set(prefixes)) == [4, 4, 4]
    assert {(words(system), words(question)) for system, question in pairs} == {(20, 5)}
    assert {body["max_tokens"] for body in bodies} == {7}


def test_the_groups_come_in_mixed_order() -> None:
    prefixes = [script.turns[0].messages[0]["content"] for script in make_scripts(REPETITION)]
    assert prefixes[:3] * 4 != prefixes
    assert sorted(prefixes) != prefixes


def test_a_chat_goes_on_with_the_answers_that_it_got() -> None:
    script, other = make_scripts(CHATS)
    bodies = bodies_of(script)
    assert script.think_time_s == 0.5
    assert [len(body["messages"]) for body in bodies] == [2, 4, 6]
    assert bodies[2]["messages"][:4] == bodies[1]["messages"]
    assert bodies[1]["messages"][2] == {"role": "assistant", "content": "OK"}
    assert [words(message) for message in bodies[0]["messages"]] == [12, 6]
    first, others_first = bodies[0]["messages"], bodies_of(other)[0]["messages"]
    assert first[0] == others_first[0], "users share the system prompt"
    assert first[1] != others_first[1]


def test_an_agents_history_grows_by_calls_and_their_results() -> None:
    bodies = bodies_of(make_scripts(AGENTS)[0])
    roles = [message["role"] for message in bodies[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]
    call, result = bodies[-1]["messages"][2:4]
    assert call["content"] == "OK"
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    names = [tool["function"]["name"] for tool in bodies[0]["tools"]]
    assert len(set(names)) == 3
    assert call["tool_calls"][0]["function"]["name"] == names[0]
    (argument,) = json.loads(call["tool_calls"][0]["function"]["arguments"]).values()
    assert (len(argument.split()), words(result)) == (4, 9)
    assert all(body["tools"] == bodies[0]["tools"] for body in bodies)


def test_a_given_body_is_sent_as_it_is_but_streamed_and_to_the_chosen_model() -> None:
    ((body,),) = map(bodies_of, make_scripts(GIVEN))
    assert body == {
        **GIVEN.bodies[0],
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_bodies_of_one_conversation_do_not_change_after_they_were_made() -> None:
    conversation = Conversation(make_scripts(CHATS)[0])
    first = conversation.next_body("m")
    conversation.add_answer("OK")
    conversation.next_body("m")
    assert len(first["messages"]) == 2


def test_there_is_no_system_message_where_it_would_be_empty() -> None:
    bare = MultiTurn(version=1, users=1, turns=1, system_tokens=0, user_tokens=3, output_tokens=1)
    (script,) = make_scripts(bare)
    assert [message["role"] for message in script.turns[0].messages] == ["user"]


@pytest.mark.parametrize(
    ("workload", "expected"), [(REPETITION, 1), (CHATS, 2), (AGENTS, 2), (GIVEN, 1)]
)
def test_users_are_the_clients_by_default(workload: Workload, expected: int) -> None:
    assert num_users(workload) == expected
