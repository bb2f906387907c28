"""The model's own chat template, in jinja's sandbox: messages in, the prompt's text out.

A request never brings a template. The template's text comes from the model's file.
"""

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gateway.continued_message import continued
from gateway.errors import InvalidRequest
from gateway.message_shapes import (
    Message,
    TemplateTraits,
    merge_system_messages,
    shape_messages,
)
from runtime.errors import ModelError

NEEDLE = "needle_of_the_probe"
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
    ) -> None:
        """`special_tokens` by their name in templates (bos_token, ...); `now` gives the date to
        templates that print it. `reads_effort` says whether a reasoning effort changes anything.

        Raises: ModelError when the template does not compile.
        """
        try:
            self._template = _environment(now).from_string(source)
        except jinja2.TemplateError as error:
            raise ModelError(f"the model's chat template does not compile: {error}") from error
        self._special_tokens = dict(special_tokens)
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
        """The text of a conversation. Shapes the template does not take are converted; where it
        refuses more than one system message, they are merged in front. `options` are further
        variables of the template. With `continues_last` the text ends where the content of the
        last message does.

        Raises: InvalidRequest with what the template said.
        """
        shaped = shape_messages(messages, self.traits)
        variables = {**(options or {}), "tools": list(tools) or None}
        if continues_last:
            return continued(shaped, lambda marked: self._attempt(marked, variables))
        return self._attempt(shaped, {**variables, "add_generation_prompt": adds_generation_prompt})

    def _attempt(self, messages: list[Message], variables: Mapping[str, Any]) -> str:
        try:
            return self._render(messages, variables)
        except Exception as error:  # templates are programs: any exception can come out of one
            merged = merge_system_messages(messages)
            if merged == messages:
                raise _refusal(error) from error
        try:
            return self._render(merged, variables)
        except Exception as error:
            raise _refusal(error) from error

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
    """Renders small conversations to see how a template takes them; a failure shows nothing."""

    def __init__(self, render: Callable[..., str]) -> None:
        self._render = render

    def text_of(self, *messages: Message) -> str:
        try:
            return self._render(messages)
        except Exception:  # any exception means: not like this
            return ""

    def takes_content(self, content: str | list[Message]) -> bool:
        """Whether the content's text comes out, and not as the data structure around it."""
        text = self.text_of({"role": "user", "content": content})
        return NEEDLE in text and f"'{NEEDLE}'" not in text and f'"{NEEDLE}"' not in text

    def text_of_call(self, arguments: Any) -> str:
        # Nine alphanumeric characters are the one form of id that every template takes.
        call = {
            "id": "call00001",
            "type": "function",
            "function": {"name": "probe", "arguments": arguments},
        }
        return self.text_of(
            {"role": "user", "content": "probe"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        )


def _find_traits(render: Callable[..., str], source: str) -> TemplateTraits:
    probe = _Probe(render)
    takes_parts = probe.takes_content([{"type": "text", "text": NEEDLE}])
    as_text = probe.text_of_call(json.dumps({NEEDLE: 1}))
    as_object = probe.text_of_call({NEEDLE: 1})
    shows_object = NEEDLE in as_object and f"'{NEEDLE}'" not in as_object
    return TemplateTraits(
        takes_text=probe.takes_content(NEEDLE) or not takes_parts,
        takes_parts=takes_parts,
        takes_developer="'developer'" in source or '"developer"' in source,
        # The text is preferred: it repeats what the model wrote, so the next turn of a chat
        # finds its own tokens in the cache.
        tool_arguments="text" if f'"{NEEDLE}":' in as_text else "object" if shows_object else None,
    )
