"""Local references of one document: where they lead, and the name each target gets in `$defs`."""

from collections import deque
from dataclasses import dataclass
from urllib.parse import unquote, urldefrag

from grammar.errors import UnsupportedConstraint
from grammar.schema.subschemas import BY_NAME
from grammar.schema_document import Json, child, steps_of


@dataclass(frozen=True, slots=True)
class Target:
    """A referenced schema: its new name, its place in the client's document."""

    name: str
    pointer: str
    schema: Json


class References:
    """Nothing is fetched: a reference leads to a place in this document or is refused."""

    def __init__(self, document: Json) -> None:
        self._document = document
        self._base = _identifier(document)
        self._names: dict[str, str] = {}
        self._pending: deque[Target] = deque()

    def name_of(self, reference: Json, place: str) -> str:
        """The reference to write instead; its target is queued when it is met first."""
        pointer, schema = self._locate(reference, place)
        self._require_one_base(place, place)
        if pointer == "":
            return "#"
        self._require_one_base(pointer, place)
        if pointer not in self._names:
            self._names[pointer] = f"d{len(self._names)}"
            self._pending.append(Target(self._names[pointer], pointer, schema))
        return f"#/$defs/{self._names[pointer]}"

    def resolve(self, reference: Json) -> Json:
        """The schema behind a reference that `name_of` accepted."""
        return self._locate(reference, "")[1]

    def next_pending(self) -> Target | None:
        return self._pending.popleft() if self._pending else None

    def _locate(self, reference: Json, place: str) -> tuple[str, Json]:
        if not isinstance(reference, str):
            raise _refused("a $ref is a string", place)
        document, fragment = urldefrag(reference)
        if document and document != self._base:
            raise _refused(f"remote references are not fetched: {reference!r}", place)
        if fragment and not fragment.startswith("/"):
            raise _refused(f"references to anchors are not supported: {reference!r}", place)
        pointer = ""
        node = self._document
        for step in steps_of(unquote(fragment)):
            node = _step_into(node, step, reference, place)
            pointer = child(pointer, step)
        return pointer, node

    def _require_one_base(self, pointer: str, place: str) -> None:
        """An identifier below the root would change what "#" means there."""
        node = self._document
        is_map = False  # whether the keys of `node` are names, not keywords
        for step in steps_of(pointer):
            node = node[int(step)] if isinstance(node, list) else node[step]
            is_map = step in BY_NAME and not is_map
            if not is_map and _identifier(node):
                raise _refused("references inside a schema with its own $id", place)


def _identifier(schema: Json) -> str:
    """The absolute part of a schema's `$id` (draft 4: `id`)."""
    if not isinstance(schema, dict):
        return ""
    identifier = schema.get("$id", schema.get("id"))
    return urldefrag(identifier)[0] if isinstance(identifier, str) else ""


def _step_into(node: Json, step: str, reference: str, place: str) -> Json:
    if isinstance(node, dict) and step in node:
        return node[step]
    if isinstance(node, list) and step.isdecimal() and int(step) < len(node):
        return node[int(step)]
    raise _refused(f"the reference leads nowhere: {reference!r}", place)


def _refused(reason: str, place: str) -> UnsupportedConstraint:
    return UnsupportedConstraint(reason, pointer=place, keyword="$ref")
