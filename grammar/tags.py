"""Structural tags: free text in which a trigger begins a tag, whose content has a schema.

Reads the two forms that clients send; grammar.tag_lark makes a grammar of them.
"""

import json
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Any, Literal

import msgspec

from grammar.errors import UnsupportedConstraint

MAX_TAGS = 1024
MAX_MARKER_CHARS = 4096
# What a JSON number may begin with or go on with, and what any JSON value may begin with.
NUMBER_CHARACTERS = frozenset("0123456789.eE")
VALUE_CHARACTERS = frozenset('{["-0123456789tfn')


@dataclass(frozen=True, slots=True)
class Tag:
    """`begin`, a value of `schema` (its JSON text), `end`; `pointer` is where the schema stands
    in the constraint."""

    begin: str
    schema: str
    end: str
    pointer: str


@dataclass(frozen=True, slots=True)
class TagUnion:
    """`min_calls` to `max_calls` tags (None: any number). With `has_text` there may be text
    around them, and only a trigger in it begins a tag; without, they follow each other directly.
    `answer` is a schema of which a value may stand instead of any tag."""

    tags: tuple[Tag, ...]
    triggers: tuple[str, ...]
    has_text: bool = True
    answer: Tag | None = None
    min_calls: int = 0
    max_calls: int | None = None


class _Structure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    begin: str
    schema: msgspec.Raw
    end: str


class _Legacy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    structures: list[_Structure]
    triggers: list[str]
    type: Literal["structural_tag"] = "structural_tag"


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: msgspec.Raw


class _Union(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["tool_union"]
    tags: list[_Structure]
    triggers: list[str] = []
    content: Literal["text", "none"] | _Answer = "text"
    min_calls: Literal[0, 1] = 0
    max_calls: int | None = None


def parse_tags(value: str) -> TagUnion:
    """Raises: UnsupportedConstraint for what is neither form, and for markers with which it could
    not be told where a tag begins or ends."""
    union = _read(value)
    if not 0 < len(union.tags) <= MAX_TAGS:
        raise UnsupportedConstraint(f"1 to {MAX_TAGS} tags are expected, not {len(union.tags)}")
    if union.max_calls is not None and union.max_calls < max(1, union.min_calls):
        raise UnsupportedConstraint("max_calls must be at least 1", pointer="/max_calls")
    for tag in union.tags:
        _check_markers(tag)
    _check_begins(union)
    _check_ends(union)
    _check_triggers(union)
    return union


def _read(value: str) -> TagUnion:
    try:
        document = msgspec.json.decode(value)
        if isinstance(document, dict) and document.get("type") == "tool_union":
            return _new_form(msgspec.json.decode(value, type=_Union))
        return _legacy_form(msgspec.json.decode(value, type=_Legacy))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnsupportedConstraint(f"no structural tag: {error}") from error


def _legacy_form(form: _Legacy) -> TagUnion:
    return TagUnion(_tags(form.structures, "/structures"), _triggers(form.triggers))


def _new_form(form: _Union) -> TagUnion:
    answer = None
    if isinstance(form.content, _Answer):
        answer = Tag("", _schema(form.content.schema), "", "/content/schema")
    return TagUnion(
        _tags(form.tags, "/tags"),
        _triggers(form.triggers),
        has_text=form.content == "text",
        answer=answer,
        min_calls=form.min_calls,
        max_calls=form.max_calls,
    )


def _tags(structures: list[_Structure], pointer: str) -> tuple[Tag, ...]:
    return tuple(
        Tag(one.begin, _schema(one.schema), one.end, f"{pointer}/{index}/schema")
        for index, one in enumerate(structures)
    )


def _schema(raw: msgspec.Raw) -> str:
    """The text as the client wrote it: the order of its keys counts. Some send it as a string."""
    text = bytes(raw).decode()
    return json.loads(text) if text.startswith('"') else text


def _triggers(triggers: list[str]) -> tuple[str, ...]:
    """Without those that begin with another: that one fires first."""
    found: list[str] = []
    for trigger in sorted(set(triggers), key=len):
        if not any(trigger.startswith(shorter) for shorter in found):
            found.append(trigger)
    return tuple(found)


def _check_markers(tag: Tag) -> None:
    for text, name in ((tag.begin, "begin"), (tag.end, "end")):
        if len(text) > MAX_MARKER_CHARS:
            raise UnsupportedConstraint(
                f"a marker has at most {MAX_MARKER_CHARS} characters", pointer=_place(tag, name)
            )


def _check_ends(union: TagUnion) -> None:
    """A number must not be read on into what follows its tag."""
    following = "".join(tag.begin[:1] for tag in union.tags)
    for tag in union.tags:
        if tag.end:
            is_clear = tag.end[0] not in NUMBER_CHARACTERS
        else:
            is_clear = not union.has_text and NUMBER_CHARACTERS.isdisjoint(following)
        if not is_clear and may_be_number(tag.schema):
            raise UnsupportedConstraint(
                f"a number may not be told from what follows it: the end is {tag.end!r}",
                pointer=_place(tag, "end"),
            )


def _check_begins(union: TagUnion) -> None:
    """Each is needed to tell its tag from the others, and from the answer."""
    begins = sorted(union.tags, key=lambda tag: tag.begin)
    if not begins[0].begin:
        raise UnsupportedConstraint("a tag begins with text", pointer=_place(begins[0], "begin"))
    for tag, following in pairwise(begins):
        if tag.begin == following.begin:
            raise UnsupportedConstraint(
                f"two tags begin with {tag.begin!r}", pointer=_place(following, "begin")
            )
    known = {tag.begin for tag in begins}
    for tag in begins:
        for length in range(len(tag.begin)):
            if tag.begin[:length] in known and tag.begin[length] in VALUE_CHARACTERS:
                raise UnsupportedConstraint(
                    f"{tag.begin!r} might be the tag {tag.begin[:length]!r} with its content",
                    pointer=_place(tag, "begin"),
                )
        if union.answer and tag.begin[:1] in VALUE_CHARACTERS:
            raise UnsupportedConstraint(
                f"{tag.begin!r} begins as an answer in JSON may", pointer=_place(tag, "begin")
            )


def _check_triggers(union: TagUnion) -> None:
    if not union.has_text:
        return
    for trigger, other in permutations(union.triggers, 2):
        if trigger in other:
            raise UnsupportedConstraint(
                f"the trigger {trigger!r} is part of another", pointer="/triggers"
            )
    for trigger in union.triggers:
        if not any(tag.begin.startswith(trigger) for tag in union.tags):
            raise UnsupportedConstraint(
                f"no tag begins with the trigger {trigger!r}", pointer="/triggers"
            )
    for tag in union.tags:
        if not any(tag.begin.startswith(trigger) for trigger in union.triggers if trigger):
            raise UnsupportedConstraint(
                f"{tag.begin!r} begins with none of the triggers", pointer=_place(tag, "begin")
            )


def _place(tag: Tag, name: str) -> str:
    return tag.pointer.removesuffix("schema") + name


def may_be_number(schema: str) -> bool:
    """Whether a value of the schema may be a bare number; true where that is not plain to see."""
    document: Any = json.loads(schema)
    if not isinstance(document, dict):
        return document is not False
    types = document.get("type")
    if types is not None:
        return not {"number", "integer"}.isdisjoint([types] if isinstance(types, str) else types)
    values = [document["const"]] if "const" in document else document.get("enum")
    if not isinstance(values, list):
        return True
    return any(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
