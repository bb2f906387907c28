"""Where the schemas of a document are: pointers, base URIs, anchors. Nothing is ever fetched."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from grammar.errors import UnsupportedConstraint
from grammar.keyword_values import refused
from grammar.schema.dialect import Dialect
from grammar.schema_document import Json, child, steps_of

# What stands in these is data, in which nothing is a schema.
DATA = frozenset({"enum", "const", "default", "examples", "example"})


class Locations:
    """Looks schemas up by pointer, and references by what they are written as."""

    def __init__(self, document: Json, dialect: Dialect) -> None:
        self._document = document
        self._dialect = dialect
        self._resources: dict[str, str] = {}
        self._anchors: dict[tuple[str, str], str] = {}
        self._dynamic: dict[str, list[str]] = {}
        self._bases: dict[str, str] = {}
        self._recursive_anchors: list[str] = []
        self._is_indexed = False

    def schema_at(self, pointer: str) -> Json:
        """Raises: KeyError where nothing is."""
        return self._walk(pointer)[0]

    def resolve(self, reference: Json, pointer: str) -> str:
        """The pointer of what `$ref` at `pointer` means. Raises: UnsupportedConstraint."""
        place = child(pointer, "$ref")
        if not isinstance(reference, str):
            raise refused("'$ref' is a string", place, "$ref")
        self._index()
        return self._target(reference, pointer, place=place, keyword="$ref")

    def resolve_dynamic(self, keyword: str, reference: Json, pointer: str) -> str | None:
        """The pointer where there is but one candidate; None where it depends on the caller."""
        place = child(pointer, keyword)
        if not isinstance(reference, str):
            raise refused(f"{keyword!r} is a string", place, keyword)
        self._index()
        target = self._target(reference, pointer, place=place, keyword=keyword)
        if keyword == "$recursiveRef":
            return target if len(self._recursive_anchors) <= 1 else None
        name = urldefrag(reference).fragment
        candidates = self._dynamic.get(name, [])
        return target if len(candidates) <= 1 or target not in candidates else None

    def _target(self, reference: str, pointer: str, *, place: str, keyword: str) -> str:
        base = self._base_of(pointer)
        full = base + reference if reference.startswith("#") else urljoin(base, reference)
        uri, fragment = urldefrag(full)
        resource = self._resources.get(uri)
        if resource is None:
            raise refused(f"remote references are never fetched: {reference!r}", place, keyword)
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            anchor = self._anchors.get((uri, fragment))
            if anchor is None:
                raise refused(f"no schema has the anchor {fragment!r}", place, keyword)
            return anchor
        target = resource + fragment
        try:
            schema, target = self._walk(target)
        except KeyError:
            raise refused(f"there is nothing at {reference!r}", place, keyword) from None
        if not isinstance(schema, dict | bool):
            raise refused(f"what is at {reference!r} is no schema", place, keyword)
        return target

    def _walk(self, pointer: str) -> tuple[Json, str]:
        """The value, and the pointer in its plainest spelling."""
        value = self._document
        plain = ""
        for step in steps_of(pointer):
            if isinstance(value, list):
                if not step.isdecimal() or int(step) >= len(value):
                    raise KeyError(step)
                value = value[int(step)]
            elif isinstance(value, dict) and step in value:
                value = value[step]
            else:
                raise KeyError(step)
            plain = child(plain, step)
        return value, plain

    def _base_of(self, pointer: str) -> str:
        """The URI of the innermost resource around a place, without fragment."""
        while pointer and pointer not in self._bases:
            pointer = pointer.rpartition("/")[0]
        return self._bases.get(pointer, "")

    def _index(self) -> None:
        if self._is_indexed:
            return
        self._is_indexed = True
        self._resources[""] = ""
        self._bases[""] = ""
        for pointer, schema in _objects(self._document):
            self._note(pointer, schema)

    def _note(self, pointer: str, schema: dict[str, Any]) -> None:
        if "$ref" in schema and self._dialect.ref_hides_siblings:
            return
        identifier = schema.get(self._dialect.id_keyword)
        if isinstance(identifier, str):
            self._note_id(pointer, identifier)
        base = self._base_of(pointer)
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = schema.get(keyword)
            if isinstance(name, str):
                self._anchors.setdefault((base, name), pointer)
                if keyword == "$dynamicAnchor":
                    self._dynamic.setdefault(name, []).append(pointer)
        if schema.get("$recursiveAnchor") is True:
            self._recursive_anchors.append(pointer)

    def _note_id(self, pointer: str, identifier: str) -> None:
        uri, fragment = urldefrag(identifier)
        if fragment:  # how drafts 4 to 7 write an anchor
            self._anchors.setdefault((self._base_of(pointer), fragment), pointer)
        if uri:
            uri = urljoin(self._base_of(pointer), uri)
            self._bases[pointer] = uri
            self._resources.setdefault(uri, pointer)


def _objects(document: Json) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of the document that may be a schema, outer ones first."""
    level: list[tuple[str, Json]] = [("", document)]
    while level:
        inner: list[tuple[str, Json]] = []
        for pointer, value in level:
            if isinstance(value, dict):
                yield pointer, value
                inner += [(child(pointer, k), v) for k, v in value.items() if k not in DATA]
            elif isinstance(value, list):
                inner += [(child(pointer, i), v) for i, v in enumerate(value)]
        level = inner
        if len(level) > 1_000_000:
            raise UnsupportedConstraint("the schema has too many parts")
