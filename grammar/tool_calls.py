"""What a model may write that has tools: text, or one block of calls in the form that it knows.

The gateway makes this of a request's tools and the model's dialect; grammar.tool_lark makes a
grammar of it. A client never writes it, as `tokens` names control tokens.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from os.path import commonprefix
from typing import Literal

import msgspec

from grammar.errors import UnsupportedConstraint
from grammar.tags import (
    MAX_MARKER_CHARS,
    MAX_TAGS,
    NUMBER_CHARACTERS,
    VALUE_CHARACTERS,
    Tag,
    check_begins,
    may_be_number,
)

CallStyle = Literal["json", "keywords"]
# What values of a type begin with.
_STARTS = {
    "object": "{",
    "array": "[",
    "string": '"',
    "boolean": "tf",
    "null": "n",
    "number": "-0123456789",
    "integer": "-0123456789",
}


class Call(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """`begin`, the arguments that `schema` allows, `end`. In the style of keywords these are
    name=value, with commas between them. `name` is the function's, for wrapped calls."""

    begin: str
    schema: msgspec.Raw
    end: str = ""
    style: CallStyle = "json"
    name: str = ""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON value that may stand instead of calls."""

    schema: msgspec.Raw


class Wrapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What models write around calls that do not keep to their form. Each is a sequence of texts,
    with space between them and around."""

    openings: list[list[str]]
    closings: list[list[str]]


class ToolCalls(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """`opening`, one to `max_calls` calls (None: any number) with a `separator` between them,
    `closing`: a block, which ends the output.

    `content` text: free text without a trigger may stand before the block, or for it. With
    `is_leading` it only stands for it, and a trigger counts at its beginning only. None: the block
    and nothing else. An Answer: the block or a value of it.

    Each trigger begins the block: its opening or, if that is leading, its opening and first call.
    `tokens` are texts that are a single token of the vocabulary wherever they stand in the block;
    no other text can be such a token. With a `wrapping` calls may also be the whole output without
    any trigger, if they are objects with name and arguments from its first character on.
    """

    calls: list[Call]
    opening: str = ""
    separator: str = ""
    closing: str = ""
    triggers: list[str] = []
    is_leading: bool = False
    tokens: dict[str, int] = {}
    content: Literal["text", "none"] | Answer = "text"
    wrapping: Wrapping | None = None
    max_calls: int | None = None


@dataclass(frozen=True, slots=True)
class Links:
    """What follows a call: `shared`, then `more` and another call, or `end`."""

    shared: str
    more: str
    end: str


def parse_tool_calls(value: str) -> ToolCalls:
    """Raises: UnsupportedConstraint for what is not that form, and for markers with which it could
    not be told what the model wrote."""
    try:
        union = msgspec.json.decode(value, type=ToolCalls)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnsupportedConstraint(f"no tool calls: {error}") from error
    if not 0 < len(union.calls) <= MAX_TAGS:
        raise UnsupportedConstraint(f"1 to {MAX_TAGS} calls are expected", pointer="/calls")
    if union.max_calls is not None and union.max_calls < 1:
        raise UnsupportedConstraint("max_calls must be at least 1", pointer="/max_calls")
    for name, text in _markers(union):
        if len(text) > MAX_MARKER_CHARS:
            raise UnsupportedConstraint(
                f"a marker has at most {MAX_MARKER_CHARS} characters", pointer=name
            )
    _check_tokens(union)
    _check_calls(union)
    _check_links(union)
    _check_triggers(union)
    _check_wrapping(union)
    if isinstance(union.content, Answer):
        _check_answer(union, _schema(union.content.schema))
    return union


def tag_of(call: Call, index: int) -> Tag:
    """The call as a tag, with the place of its schema."""
    return Tag(call.begin, _schema(call.schema), call.end, f"/calls/{index}/schema")


def links(union: ToolCalls) -> Links:
    """Separator and closing without what they have in common, which is where a lexer that takes
    the longest lexeme could not tell them apart. A token is not cut."""
    parts = [list(split_at_tokens(text, union.tokens)) for text in (union.separator, union.closing)]
    num_shared = 0
    for separator, closing in zip(*parts, strict=False):
        if separator != closing:
            break
        num_shared += 1
    shared = "".join(parts[0][:num_shared])
    left = [part[num_shared] if num_shared < len(part) else "" for part in parts]
    if not set(left) & set(union.tokens):
        shared += commonprefix(left)
    return Links(shared, union.separator[len(shared) :], union.closing[len(shared) :])


def split_at_tokens(text: str, tokens: dict[str, int]) -> Iterator[str]:
    """The text in pieces, of which those that are a token are one piece each."""
    if not tokens:
        yield from (text,) if text else ()
        return
    known = "|".join(re.escape(token) for token in sorted(tokens, key=len, reverse=True))
    yield from filter(None, re.split(f"({known})", text))


def _schema(raw: msgspec.Raw) -> str:
    """The text as the client wrote it: the order of its keys counts."""
    return bytes(raw).decode()


def _markers(union: ToolCalls) -> Iterator[tuple[str, str]]:
    yield from (("/opening", union.opening), ("/separator", union.separator))
    yield "/closing", union.closing
    for index, call in enumerate(union.calls):
        yield from ((f"/calls/{index}/begin", call.begin), (f"/calls/{index}/end", call.end))


def _check_tokens(union: ToolCalls) -> None:
    for text, token_id in union.tokens.items():
        if not text or token_id < 0:
            raise UnsupportedConstraint("a token has a text and an id", pointer="/tokens")


def _check_calls(union: ToolCalls) -> None:
    tags = [tag_of(call, index) for index, call in enumerate(union.calls)]
    check_begins(tags)
    for index, (call, tag) in enumerate(zip(union.calls, tags, strict=True)):
        place = f"/calls/{index}/end"
        if call.style == "keywords" and not call.end:
            raise UnsupportedConstraint("a call with keywords has an end", pointer=place)
        if call.style == "json" and not call.end and may_be_number(tag.schema):
            raise UnsupportedConstraint("a number has no end of its own", pointer=place)
        if call.end and call.end[0] in NUMBER_CHARACTERS:
            raise UnsupportedConstraint(
                f"a number may not be told from what follows it: the end is {call.end!r}",
                pointer=place,
            )


def _check_links(union: ToolCalls) -> None:
    if union.max_calls == 1:
        return
    after = links(union)
    if not after.more and after.end:
        raise UnsupportedConstraint(
            "the separator is the beginning of the closing", pointer="/separator"
        )


def _check_triggers(union: ToolCalls) -> None:
    if union.content != "text":
        return
    triggers = union.triggers
    if not triggers or not all(triggers):
        raise UnsupportedConstraint("text needs triggers that are not empty", pointer="/triggers")
    for trigger in triggers:
        if trigger not in union.tokens and any(text in trigger for text in union.tokens):
            raise UnsupportedConstraint(
                f"the trigger {trigger!r} is a token and more", pointer="/triggers"
            )
        if any(other != trigger and other.startswith(trigger) for other in triggers):
            raise UnsupportedConstraint(
                f"the trigger {trigger!r} begins another", pointer="/triggers"
            )
    if not union.is_leading and (len(triggers) > 1 or not union.opening.startswith(triggers[0])):
        raise UnsupportedConstraint("the opening begins with the trigger", pointer="/triggers")
    for index, call in enumerate(union.calls):
        if not (union.opening + call.begin).startswith(tuple(triggers)):
            raise UnsupportedConstraint(
                f"{call.begin!r} begins with none of the triggers", pointer=f"/calls/{index}/begin"
            )


def _check_wrapping(union: ToolCalls) -> None:
    if union.wrapping is None:
        return
    if union.content != "text" or union.is_leading:
        raise UnsupportedConstraint("wrapped calls stand instead of text", pointer="/wrapping")
    names = [call.name for call in union.calls if call.style == "json"]
    if len(names) != len(union.calls) or len(set(names) - {""}) != len(names):
        raise UnsupportedConstraint(
            "wrapped calls are JSON, each with a name of its own", pointer="/wrapping"
        )


def _check_answer(union: ToolCalls, schema: str) -> None:
    starts = _starts(schema)
    for index, call in enumerate(union.calls):
        first = next(split_at_tokens(union.opening + call.begin, union.tokens))
        if first not in union.tokens and first[0] in starts:
            raise UnsupportedConstraint(
                f"{first!r} begins as an answer in JSON may", pointer=f"/calls/{index}/begin"
            )


def _starts(schema: str) -> frozenset[str]:
    """What a value of the schema may begin with; more where that is not plain to see."""
    document = json.loads(schema)
    types = document.get("type") if isinstance(document, dict) else None
    names = [types] if isinstance(types, str) else types
    if not isinstance(names, list) or not all(name in _STARTS for name in names):
        return VALUE_CHARACTERS
    return frozenset("".join(_STARTS[name] for name in names))
