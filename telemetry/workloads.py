"""Workloads in which prompts share beginnings, as scripts of who says what: pure, from a seed.

`telemetry.workload_file` reads them from files. A script is one user's conversation; its next turn
is sent when the last one is answered, with the answer as part of the history. docs/workloads.md
describes the kinds.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, assert_never, get_args

import msgspec

from telemetry.workload_text import shuffled, text_of, tool_of

Body = dict[str, Any]
Message = dict[str, Any]

_Number = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
_Length = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
_OutputLength = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class _Kind(
    msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True, kw_only=True
):
    """What all kinds have. `seed` decides every word."""

    version: Annotated[int, msgspec.Meta(ge=1)]
    seed: int = 1


class PrefixRepetition(_Kind, frozen=True, tag="prefix_repetition", kw_only=True):
    """Single requests, in random order: each of `groups` prefixes with `prompts_per_group`
    suffixes, each its own."""

    groups: _Number
    prompts_per_group: _Number
    prefix_tokens: _Length
    suffix_tokens: _Length
    output_tokens: _OutputLength


class MultiTurn(_Kind, frozen=True, tag="multi_turn", kw_only=True):
    """`users` chats of `turns` questions each; they share the system prompt."""

    users: _Number
    turns: _Number
    system_tokens: _Length
    user_tokens: _Length
    output_tokens: _OutputLength
    think_time_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0


class Agent(_Kind, frozen=True, tag="agent", kw_only=True):
    """`agents` tasks, each a history that grows by a call and its result `calls` times; they share
    system prompt and tools. The calls are the script's own, beside what the model answered."""

    agents: _Number
    calls: _Length
    system_tokens: _Length
    tools: Annotated[int, msgspec.Meta(ge=1, le=100)]
    tool_tokens: _Length
    task_tokens: _Length
    call_tokens: _Length
    result_tokens: _Length
    output_tokens: _OutputLength
    think_time_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0


class Requests(_Kind, frozen=True, tag="requests", kw_only=True):
    """Bodies for POST /v1/chat/completions from `file`, one JSON object a line, each a request of
    its own. `bodies` is what the file held."""

    file: str
    bodies: tuple[Body, ...] = ()


Workload = PrefixRepetition | MultiTurn | Agent | Requests
KINDS = tuple(str(kind.__struct_config__.tag) for kind in get_args(Workload))


@dataclass(frozen=True, slots=True)
class Turn:
    """What is said before the next answer. `call` is then added to that answer, as if the model had
    made it."""

    messages: tuple[Message, ...]
    fields: Mapping[str, Any]
    call: Message | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """One user's turns, one after the other."""

    turns: tuple[Turn, ...]
    think_time_s: float = 0.0


@dataclass(eq=False, slots=True)
class Conversation:
    """A script while it is played."""

    script: Script
    messages: list[Message] = field(default_factory=list)
    num_answered: int = 0

    @property
    def is_over(self) -> bool:
        return self.num_answered == len(self.script.turns)

    def next_body(self, model: str) -> Body:
        """Of the next turn: streamed, with its usage block. To be called once a turn."""
        turn = self.script.turns[self.num_answered]
        self.messages += turn.messages
        return {
            **turn.fields,
            "model": model,
            "messages": list(self.messages),
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def add_answer(self, text: str) -> None:
        """The model's answer to the body before."""
        call = self.script.turns[self.num_answered].call
        self.messages.append({"role": "assistant", "content": text, **(call or {})})
        self.num_answered += 1


def make_scripts(workload: Workload, *, seed: int | None = None) -> list[Script]:
    """In the order in which they begin; `seed` replaces the workload's own."""
    number = workload.seed if seed is None else seed
    match workload:
        case PrefixRepetition():
            return _prefix_repetition(workload, number)
        case MultiTurn():
            return [_chat(workload, number, user) for user in range(workload.users)]
        case Agent():
            tools = [
                tool_of(workload.tool_tokens, number, "tool", index)
                for index in range(workload.tools)
            ]
            return [_task(workload, number, agent, tools) for agent in range(workload.agents)]
        case Requests():
            return [Script((_given_turn(body),)) for body in workload.bodies]
        case _:
            assert_never(workload)


def num_users(workload: Workload) -> int:
    """How many clients send at a time unless something else is asked for."""
    match workload:
        case MultiTurn():
            return workload.users
        case Agent():
            return workload.agents
        case PrefixRepetition() | Requests():
            return 1
        case _:
            assert_never(workload)


def _prefix_repetition(workload: PrefixRepetition, seed: int) -> list[Script]:
    prefixes = [
        text_of(workload.prefix_tokens, seed, "prefix", group) for group in range(workload.groups)
    ]
    fields = _fields(workload.output_tokens)
    scripts = []
    for index in shuffled(workload.groups * workload.prompts_per_group, seed, "order"):
        suffix = text_of(workload.suffix_tokens, seed, "suffix", index)
        messages = _opening(prefixes[index % workload.groups], suffix)
        scripts.append(Script((Turn(messages, fields),)))
    return scripts


def _chat(workload: MultiTurn, seed: int, user: int) -> Script:
    system = text_of(workload.system_tokens, seed, "system")
    questions = [
        text_of(workload.user_tokens, seed, "question", user, turn)
        for turn in range(workload.turns)
    ]
    fields = _fields(workload.output_tokens)
    first = Turn(_opening(system, questions[0]), fields)
    others = [Turn((_user(question),), fields) for question in questions[1:]]
    return Script((first, *others), workload.think_time_s)


def _task(workload: Agent, seed: int, agent: int, tools: Sequence[Mapping[str, Any]]) -> Script:
    system = text_of(workload.system_tokens, seed, "system")
    messages = _opening(system, text_of(workload.task_tokens, seed, "task", agent))
    fields = {**_fields(workload.output_tokens), "tools": list(tools)}
    turns = []
    for number in range(workload.calls):
        call_id = f"call_{agent}_{number}"
        argument = text_of(workload.call_tokens, seed, "call", agent, number)
        turns.append(Turn(messages, fields, _call(call_id, tools[number % len(tools)], argument)))
        result = text_of(workload.result_tokens, seed, "result", agent, number)
        messages = ({"role": "tool", "tool_call_id": call_id, "content": result},)
    return Script((*turns, Turn(messages, fields)), workload.think_time_s)


def _call(call_id: str, tool: Mapping[str, Any], argument: str) -> Message:
    name, (parameter,) = tool["function"]["name"], tool["function"]["parameters"]["required"]
    function = {"name": name, "arguments": json.dumps({parameter: argument})}
    return {"tool_calls": [{"id": call_id, "type": "function", "function": function}]}


def _given_turn(body: Mapping[str, Any]) -> Turn:
    fields = {name: value for name, value in body.items() if name != "messages"}
    return Turn(tuple(body["messages"]), fields)


def _opening(system: str, question: str) -> tuple[Message, ...]:
    """Without a system message where it would say nothing."""
    if not system:
        return (_user(question),)
    return {"role": "system", "content": system}, _user(question)


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _fields(output_tokens: int) -> Body:
    """Greedy answers of one length, so that runs can be compared."""
    return {"max_tokens": output_tokens, "temperature": 0, "ignore_eos": True}
