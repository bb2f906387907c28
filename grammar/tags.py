"""Structural tags: free text in which a trigger begins a tag, whose content has a schema.

Reads the form that clients send; grammar.tag_lark makes a grammar of it. The calls that the tools
of a request allow have a form of their own (grammar.tool_calls).
"""

import json
from collections.abc import Sequence
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
class TaggedText:
    """Text in which a trigger, and nothing else, begins a tag."""

    tags: tuple[Tag, ...]
    triggers: tuple[str, ...]


class _Structure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    begin: str
    schema: msgspec.Raw
    end: str


class _Legacy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    structures: list[_Structure]
    triggers: list[str]
    type: Literal["structural_tag"] = "structural_tag"


def parse_tags(value: str) -> TaggedText:
    """Raises: UnsupportedConstraint for what is not that form, and for markers with which it could
    not be told where a tag begins or ends."""
    tagged = _read(value)
    if not 0 < len(tagged.tags) <= MAX_TAGS:
        raise UnsupportedConstraint(f"1 to {MAX_TAGS} tags are expected, not {len(tagged.tags)}")
    for tag in tagged.tags:
        _check_markers(tag)
    check_begins(tagged.tags)
    _check_ends(tagged)
    _check_triggers(tagged)
    return tagged


def _read(value: str) -> TaggedText:
    try:
        form = msgspec.json.decode(value, type=_Legacy)
        return TaggedText(_tags(form.structures, "/structures"), _triggers(form.triggers))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnsupportedConstraint(f"no structural tag: {error}") from error


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


def _check_ends(tagged: TaggedText) -> None:
    """A number must not be read on into what follows its tag."""
    for tag in tagged.tags:
        is_clear = tag.end and tag.end[0] not in NUMBER_CHARACTERS
        if not is_clear and may_be_number(tag.schema):
            raise UnsupportedConstraint(
                f"a number may not be told from what follows it: the end is {tag.end!r}",
                pointer=_place(tag, "end"),
            )


def check_begins(tags: Sequence[Tag]) -> None:
    """Each is needed to tell its tag from the others.

    Raises: UnsupportedConstraint.
    """
    begins = sorted(tags, key=lambda tag: tag.begin)
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


def _check_triggers(tagged: TaggedText) -> None:
    for trigger, other in permutations(tagged.triggers, 2):
        if trigger in other:
            raise UnsupportedConstraint(
                f"the trigger {trigger!r} is part of another", pointer="/triggers"
            )
    for trigger in tagged.triggers:
        if not any(tag.begin.startswith(trigger) for tag in tagged.tags):
            raise UnsupportedConstraint(
                f"no tag begins with the trigger {trigger!r}", pointer="/triggers"
            )
    for tag in tagged.tags:
        if not any(tag.begin.startswith(trigger) for trigger in tagged.triggers if trigger):
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
