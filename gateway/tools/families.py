"""The dialects of the known families of models, and which of them a chat template speaks.

Forms are those that the families' own templates write into a conversation.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gateway.tools.dialect import CallForm, Dialect, DialectName
from grammar.tool_calls import Wrapping

DialectSetting = Literal["auto", "hermes", "llama3_json", "pythonic", "mistral", "granite", "phi"]

_NAMED_JSON = CallForm('{"name": "', '", "arguments": ', "}")

# What small models write instead of tags that they were told of: Qwen2.5-Coder always, in a fence;
# with two braces, as its template has them in the example.
_FENCED = Wrapping(
    openings=[[], ["{"], ["["], ["```json"], ["```"], ["```json", "["], ["<tools>"]],
    closings=[["}"], ["]"], ["```"], ["]", "```"], ["</tools>"]],
)
# Qwen, Hermes, SmolLM, Granite 4; and whoever has no dialect of its own.
HERMES = Dialect(
    "hermes",
    (_NAMED_JSON,),
    opening="<tool_call>\n",
    separator="\n</tool_call>\n<tool_call>\n",
    closing="\n</tool_call>",
    trigger="<tool_call>",
    markers=("<tool_call>", "</tool_call>"),
    gap="\n",
    wrapping=_FENCED,
)
# Llama 3.1 and later. The second form is one that these models often prefer to that of their
# template.
LLAMA3_JSON = Dialect(
    "llama3_json",
    (
        CallForm('{"name": "', '", "parameters": ', "}"),
        CallForm('{"type": "function", "name": "', '", "parameters": ', "}"),
    ),
    separator="; ",
    json_marker="<|python_tag|>",
)
_PYTHON_CALL = CallForm("", "(", ")")
PYTHONIC = Dialect(
    "pythonic", (_PYTHON_CALL,), opening="[", separator=", ", closing="]", style="keywords"
)
# The same between tokens, as LFM2 has it.
PYTHONIC_IN_MARKERS = Dialect(
    "pythonic",
    (_PYTHON_CALL,),
    opening="<|tool_call_start|>[",
    separator=", ",
    closing="]<|tool_call_end|>",
    trigger="<|tool_call_start|>",
    markers=("<|tool_call_start|>", "<|tool_call_end|>"),
    style="keywords",
)


def _list_of(name: DialectName, marker: str, *, closing: str = "", space: str = "") -> Dialect:
    """A JSON list of calls after a marker."""
    return Dialect(
        name,
        (_NAMED_JSON,),
        opening=f"{marker}{space}[",
        separator=", ",
        closing=f"]{closing}",
        trigger=marker,
        markers=tuple(filter(None, (marker, closing))),
        has_short_ids=name == "mistral",
    )


MISTRAL = _list_of("mistral", "[TOOL_CALLS]")
MISTRAL_SPACED = _list_of("mistral", "[TOOL_CALLS]", space=" ")
# Newer ones write no list: each call has its marker.
MISTRAL_ARGS = Dialect(
    "mistral",
    (CallForm("", "[ARGS]"),),
    opening="[TOOL_CALLS]",
    separator="[TOOL_CALLS]",
    trigger="[TOOL_CALLS]",
    markers=("[TOOL_CALLS]", "[ARGS]"),
    has_short_ids=True,
)
GRANITE = _list_of("granite", "<|tool_call|>")
GRANITE_OLD = _list_of("granite", "<tool_call>")
PHI = _list_of("phi", "<|tool_call|>", closing="<|/tool_call|>")
PHI_FUNCTOOLS = _list_of("phi", "functools")


@dataclass(frozen=True, slots=True)
class _Family:
    """`speaks` says whether a template is one of the family's, `variant` which form it has."""

    speaks: Callable[[str], bool]
    variant: Callable[[str], Dialect]


def _mistral(template: str) -> Dialect:
    if "[ARGS]" in template:
        return MISTRAL_ARGS
    return MISTRAL_SPACED if "[TOOL_CALLS] [" in template else MISTRAL


def _pythonic(template: str) -> Dialect:
    return PYTHONIC_IN_MARKERS if "<|tool_call_start|>" in template else PYTHONIC


def _granite(template: str) -> Dialect:
    return GRANITE if "<|tool_call|>" in template or "<tool_call>" not in template else GRANITE_OLD


def _is_granite(template: str) -> bool:
    is_old = "<tool_call>" in template and "</tool_call>" not in template
    return "<|start_of_role|>" in template and ("<|tool_call|>" in template or is_old)


# In the order in which they are looked for.
_FAMILIES: dict[DialectName, _Family] = {
    "mistral": _Family(lambda text: "[TOOL_CALLS]" in text, _mistral),
    "granite": _Family(_is_granite, _granite),
    "phi": _Family(
        lambda text: "<|/tool|>" in text or "<|/tool_call|>" in text or "functools[" in text,
        lambda text: PHI_FUNCTOOLS if "functools[" in text else PHI,
    ),
    "hermes": _Family(lambda text: "<tool_call>" in text, lambda _: HERMES),
    "pythonic": _Family(
        lambda text: (
            "<|tool_call_start|>" in text or re.search(r"\[\w+\(\w+=\w+", text) is not None
        ),
        _pythonic,
    ),
    "llama3_json": _Family(
        lambda text: '"parameters": ' in text and ("ipython" in text or "<|python_tag|>" in text),
        lambda _: LLAMA3_JSON,
    ),
}


def find_dialect(setting: DialectSetting, template: str | None) -> Dialect:
    """The dialect of a chat template, or the variant of a given one that fits it best."""
    text = template or ""
    if setting != "auto":
        return _FAMILIES[setting].variant(text)
    for family in _FAMILIES.values():
        if family.speaks(text):
            return family.variant(text)
    return HERMES
