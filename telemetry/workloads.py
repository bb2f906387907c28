"""Workloads in which prompts share beginnings, as scripts of who says what: pure, from a seed.

`telemetry.workload_file` reads them from files. A script is one user's conversation; its next turn
is sent when the last one is answered, with the answer as part of the history. docs/workloads.md
describes the kinds.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, assert_never, get_args

import msgspec

from telemetry.workload_schemas import SCHEMAS
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


class JsonSchema(_Kind, frozen=True, tag="json_schema", kw_only=True):
    """Single requests whose answers have to fit one of several schemas, by turns. An answer ends
    where its object does, and with `output_tokens` at the latest."""

    requests: _Number
    prompt_tokens: _Length
    output_tokens: _OutputLength


class Requests(_Kind, frozen=True, tag="requests", kw_only=True):
    """Bodies for POST /v1/chat/completions from `file`, one JSON object a line, each a request of
    its own. `bodies` is what the file held."""

    file: str
    bodies: tuple[Body, ...] = ()


Workload = PrefixRepetition | MultiTurn | Agent | JsonSchema | Requests
KINDS = tuple(str(kind.__struct_config__.tag) for kind in get_args(Workload))


@dataclass(frozen=True, slots=True)
class Turn:
    """What is said before the next answer. `call` is then added to that answer, as if the model had
    made it."""

    messages: tuple[Message, ...]
    fields: Mapping[str, Any]
    call: Message | None = None

    @property
    def schema(self) -> object | None:
        """What the answer has to fit; None where it may be anything."""
        wanted = self.fields.get("response_format")
        if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
            return None
        named = wanted.get("json_schema")
        return named.get("schema") if isinstance(named, dict) else None


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
    def turn(self) -> Turn:
        """The next one."""
        return self.script.turns[self.num_answered]

    @property
    def is_over(self) -> bool:
        return self.num_answered == len(self.script.turns)

    def next_body(self, model: str) -> Body:
        """Of the next turn: streamed, with its usage block. To be called once a turn."""
        turn = self.turn
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


def make_scripts(workload: Workload, *, seed: int | str | None = None) -> list[Script]:
    """In the order in which they begin; `seed` replaces the workload's own."""
    return list(iter_scripts(workload, seed=seed))


def iter_scripts(workload: Workload, *, seed: int | str | None = None) -> Iterator[Script]:
    """The same, each made when it is taken."""
    name = workload.seed if seed is None else seed
    match workload:
        case PrefixRepetition():
            return _prefix_repetition(workload, name)
        case MultiTurn():
            return (_chat(workload, name, user) for user in range(workload.users))
        case Agent():
            tools = [
                tool_of(workload.tool_tokens, name, "tool", index)
                for index in range(workload.tools)
            ]
            return (_task(workload, name, agent, tools) for agent in range(workload.agents))
        case JsonSchema():
            return (_record(workload, name, index) for index in range(workload.requests))
        case Requests():
            return (Script((given_turn(body),)) for body in workload.bodies)
        case _:
            assert_never(workload)


def turns_of(workload: Workload) -> tuple[int, int]:
    """The number of scripts, and of the turns of each."""
    match workload:
        case PrefixRepetition():
            return workload.groups * workload.prompts_per_group, 1
        case MultiTurn():
            return workload.users, workload.turns
        case Agent():
            return workload.agents, workload.calls + 1
        case JsonSchema():
            return workload.requests, 1
        case Requests():
            return len(workload.bodies), 1
        case _:
            assert_never(workload)


def given_turn(body: Mapping[str, Any]) -> Turn:
    """Of a chat body as a file has it."""
    fields = {name: value for name, value in body.items() if name != "messages"}
    return Turn(tuple(body["messages"]), fields)


def prompt_turn(prompt: str, output_tokens: int) -> Turn:
    return Turn((_user(prompt),), _fields(output_tokens))


def num_users(workload: Workload) -> int:
    """How many clients send at a time unless something else is asked for."""
    match workload:
        case MultiTurn():
            return workload.users
        case Agent():
            return workload.agents
        case PrefixRepetition() | JsonSchema() | Requests():
            return 1
        case _:
            assert_never(workload)


def _prefix_repetition(workload: PrefixRepetition, seed: int | str) -> Iterator[Script]:
    prefixes: dict[int, str] = {}
    fields = _fields(workload.output_tokens)
    for index in shuffled(workload.groups * workload.prompts_per_group, seed, "order"):
        group = index % workload.groups
        if group not in prefixes:
            prefixes[group] = text_of(workload.prefix_tokens, seed, "prefix", group)
        suffix = text_of(workload.suffix_tokens, seed, "suffix", index)
        messages = _opening(prefixes[group], suffix)
        yield Script((Turn(messages, fields),))


def _chat(workload: MultiTurn, seed: int | str, user: int) -> Script:
    system = text_of(workload.system_tokens, seed, "system")
    questions = [
        text_of(workload.user_tokens, seed, "question", user, turn)
        for turn in range(workload.turns)
    ]
    fields = _fields(workload.output_tokens)
    first = Turn(_opening(system, questions[0]), fields)
    others = [Turn((_user(question),), fields) for question in questions[1:]]
    return Script((first, *others), workload.think_time_s)


def _task(
    workload: Agent, seed: int | str, agent: int, tools: Sequence[Mapping[str, Any]]
) -> Script:
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


def _record(workload: JsonSchema, seed: int | str, index: int) -> Script:
    name, schema = SCHEMAS[index % len(SCHEMAS)]
    words = text_of(workload.prompt_tokens, seed, "record", index)
    question = f"Invent a {name} as JSON. It has to do with these words: {words}"
    wanted = {"name": name, "strict": True, "schema": schema}
    fields = {
        "max_tokens": workload.output_tokens,
        "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": wanted},
    }
    return Script((Turn((_user(question),), fields),))


def _call(call_id: str, tool: Mapping[str, Any], argument: str) -> Message:
    name, (parameter,) = tool["function"]["name"], tool["function"]["parameters"]["required"]
    function = {"name": name, "arguments": json.dumps({parameter: argument})}
    return {"tool_calls": [{"id": call_id, "type": "function", "function": function}]}


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
