"""The model's own chat template, in jinja's sandbox: messages in, the prompt's text out.

A request never brings a template. The template's text comes from the model's file.
"""

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gateway.continued_message import continued
from gateway.errors import InvalidRequest
from gateway.message_repairs import repairs
from gateway.message_shapes import (
    Message,
    TemplateTraits,
    WrittenObject,
    shape_messages,
    with_tools,
)
from gateway.tools.dialect import Dialect
from gateway.tools.families import find_dialect
from runtime.errors import ModelError

NEEDLE = "needle_of_the_probe"
# Nine letters and digits are the one form of id that every template takes.
_SHORT_ID, _LONG_ID = "call00001", "call_of-the-probe"
_PARAMETERS = {
    "type": "object",
    "properties": {"probe": {"type": "string", "description": "probe"}},
    "required": ["probe"],
}
EFFORT_VARIABLES = ("reasoning_effort", "enable_thinking")
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class ChatTemplate:
    """A compiled template and what it was found to take. Thread-safe."""

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str],
        *,
        now: Callable[[], datetime.datetime] = datetime.datetime.now,
        dialect: Dialect | None = None,
    ) -> None:
        """`special_tokens` by their name in templates (bos_token, ...); `now` gives the date to
        templates that print it. `dialect` None is the one that the template speaks. `reads_effort`
        says whether a reasoning effort changes anything.

        Raises: ModelError when the template does not compile.
        """
        try:
            self._template = _environment(now).from_string(source)
        except jinja2.TemplateError as error:
            raise ModelError(f"the model's chat template does not compile: {error}") from error
        self._special_tokens = dict(special_tokens)
        self.dialect = find_dialect("auto", source) if dialect is None else dialect
        self.traits = _find_traits(self._render, source)
        self.reads_effort = any(name in source for name in EFFORT_VARIABLES)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Message] = (),
        options: Mapping[str, Any] | None = None,
        adds_generation_prompt: bool = True,
        continues_last: bool = False,
    ) -> str:
        """The text of a conversation. Shapes the template does not take are converted, and what
        it refuses is changed as little as it takes. `tools` are shown by the template or, where it
        has no place for them, described to the system. `options` are further variables of the
        template. With `continues_last` the text ends where the content of the last message does.

        Raises: InvalidRequest with what the template said.
        """
        shaped = shape_messages(messages, self.traits, self.dialect)
        shaped = with_tools(shaped, tools, self.traits, dialect=self.dialect)
        variables = {**(options or {}), "tools": list(tools) or None}
        if continues_last:
            return continued(shaped, lambda marked: self._attempt(marked, variables))
        return self._attempt(shaped, {**variables, "add_generation_prompt": adds_generation_prompt})

    def _attempt(self, messages: list[Message], variables: Mapping[str, Any]) -> str:
        try:
            return self._render(messages, variables)
        except Exception as error:  # templates are programs: any exception can come out of one
            refusal = _refusal(error)
        for repaired in repairs(messages, self.dialect):
            try:
                return self._render(repaired, variables)
            except Exception:  # what it said of the messages as they are is what counts
                continue
        raise refusal

    def _render(
        self, messages: Sequence[Message], variables: Mapping[str, Any] = NO_OPTIONS
    ) -> str:
        known = {"documents": None, "tools": None, "add_generation_prompt": False}
        return self._template.render(
            {**known, **variables, "messages": messages, **self._special_tokens}
        )


def _refusal(error: Exception) -> InvalidRequest:
    reason = str(error) if isinstance(error, jinja2.TemplateError) else repr(error)
    return InvalidRequest(
        f"The model's chat template cannot render these messages: {reason}", param="messages"
    )


def _environment(now: Callable[[], datetime.datetime]) -> ImmutableSandboxedEnvironment:
    """As transformers sets it up, which is what template authors test against."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[jinja2.ext.loopcontrols, _GenerationTag],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: now().strftime(form)
    return environment


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}` marks an assistant's words for training; here its body is plain text."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """jinja's own filter escapes HTML; models were trained on plain JSON."""
    if isinstance(value, WrittenObject) and (indent, separators, sort_keys) == (None, None, False):
        return value.text
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> str:
    raise jinja2.TemplateError(message)


class _Probe:
    """Renders small conversations to see how a template takes them; a failure shows nothing.
    Contents are texts, or parts with `takes_parts_only`."""

    def __init__(self, render: Callable[..., str]) -> None:
        self._render = render
        self.takes_parts_only = False

    def text_of(self, *messages: Message, tools: Sequence[Message] | None = None) -> str:
        try:
            return self._render(messages, {"tools": tools})
        except Exception:  # any exception means: not like this
            return ""

    def takes_content(self, content: str | list[Message]) -> bool:
        """Whether the content's text comes out, and not as the data structure around it."""
        text = self.text_of({"role": "user", "content": content})
        return NEEDLE in text and f"'{NEEDLE}'" not in text and f'"{NEEDLE}"' not in text

    def text_of_call(
        self, arguments: Any, *, text: str = "", call_id: str = _SHORT_ID, result: str = ""
    ) -> str:
        call = {
            "id": call_id,
            "type": "function",
            "function": {"name": "probe", "arguments": arguments},
        }
        messages = [
            self._message("user", "probe"),
            {**self._message("assistant", text), "tool_calls": [call]},
        ]
        if result:
            messages.append({**self._message("tool", result), "tool_call_id": call_id})
        return self.text_of(*messages)

    def shows_tools(self) -> Literal["variable", "system"] | None:
        function = {"name": NEEDLE, "description": "probe", "parameters": _PARAMETERS}
        user, system = (self._message(role, "probe") for role in ("user", "system"))
        tools = [{"type": "function", "function": function}]
        if any(NEEDLE in self.text_of(*before, user, tools=tools) for before in ((), (system,))):
            return "variable"
        in_system = self.text_of({**system, "tools": NEEDLE}, user)
        return "system" if NEEDLE in in_system else None

    def _message(self, role: str, text: str) -> Message:
        parts = [{"type": "text", "text": text}] if text else []
        return {"role": role, "content": parts if self.takes_parts_only else text}


def _find_traits(render: Callable[..., str], source: str) -> TemplateTraits:
    probe = _Probe(render)
    takes_parts = probe.takes_content([{"type": "text", "text": NEEDLE}])
    probe.takes_parts_only = takes_parts and not probe.takes_content(NEEDLE)
    as_text = probe.text_of_call(json.dumps({NEEDLE: 1}))
    as_object = probe.text_of_call({NEEDLE: 1})
    shows_object = NEEDLE in as_object and f"'{NEEDLE}'" not in as_object
    # The text is preferred: it repeats what the model wrote, so the next turn of a chat
    # finds its own tokens in the cache.
    is_text = f'"{NEEDLE}":' in as_text
    arguments: Any = "{}" if is_text else {}
    return TemplateTraits(
        takes_text=not probe.takes_parts_only,
        takes_parts=takes_parts,
        takes_developer="'developer'" in source or '"developer"' in source,
        tool_arguments="text" if is_text else "object" if shows_object else None,
        tools=probe.shows_tools(),
        takes_results=(is_text or shows_object)
        and NEEDLE in probe.text_of_call(arguments, result=NEEDLE),
        takes_text_and_calls=not (is_text or shows_object)
        or NEEDLE in probe.text_of_call(arguments, text=NEEDLE),
        takes_any_id=probe.text_of_call(arguments, call_id=_LONG_ID) != "",
    )
