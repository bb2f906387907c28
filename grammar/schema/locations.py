"""Where the schemas of a document are: pointers, base URIs, anchors. Nothing is ever fetched."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from grammar.keyword_values import refused
from grammar.schema.dialect import Dialect
from grammar.schema.subschemas import inner_schemas
from grammar.schema_document import Json, child, steps_of


class Locations:
    """Looks schemas up by pointer, and references by what they are written as.

    Only schemas below keywords that hold schemas have identifiers and anchors; a pointer may lead
    to any place.
    """

    def __init__(self, document: Json, dialect: Dialect) -> None:
        self._document = document
        self._dialect = dialect
        self._resources: dict[str, str] = {}
        self._bases: dict[str, str] = {}
        self._anchors: dict[tuple[str, str], str] = {}
        # Name -> URI of a resource -> pointer of the anchor there.
        self._dynamic: dict[str, dict[str, str]] = {}
        self._recursive: set[str] = set()
        self._is_indexed = False

    def schema_at(self, pointer: str) -> Json:
        """Raises: KeyError where nothing is."""
        return self._walk(pointer)[0]

    def resolve(self, keyword: str, reference: str, pointer: str) -> str | None:
        """The pointer of what the reference in the schema at `pointer` means; None where that
        depends on the way to it ($dynamicRef, $recursiveRef). Raises: UnsupportedConstraint."""
        target = self._target(reference, pointer, keyword=keyword)
        if keyword == "$ref":
            return target
        if keyword == "$recursiveRef":
            is_certain = target not in self._recursive or len(self._recursive) == 1
            return target if is_certain else None
        candidates = self._dynamic.get(unquote(urldefrag(reference).fragment), {})
        if target not in candidates.values() or len(candidates) == 1:
            return target
        # The outermost resource that has the anchor: everything is entered through the root's.
        return candidates.get(self._bases[""]) if self._bases[""] else None

    def _target(self, reference: str, pointer: str, *, keyword: str) -> str:
        self._index()
        place = child(pointer, keyword)
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
        try:
            schema, target = self._walk(resource + fragment)
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
                value = value[_index_in(value, step)]
            elif isinstance(value, dict):
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
        for pointer, schema in _schemas(self._document):
            if not ("$ref" in schema and self._dialect.ref_hides_siblings):
                self._note(pointer, schema)

    def _note(self, pointer: str, schema: dict[str, Any]) -> None:
        identifier = schema.get(self._dialect.id_keyword)
        if isinstance(identifier, str):
            self._note_id(pointer, identifier)
        base = self._base_of(pointer)
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = schema.get(keyword)
            if isinstance(name, str):
                self._anchors.setdefault((base, name), pointer)
                if keyword == "$dynamicAnchor":
                    self._dynamic.setdefault(name, {}).setdefault(base, pointer)
        if schema.get("$recursiveAnchor") is True and pointer in self._bases:
            self._recursive.add(pointer)

    def _note_id(self, pointer: str, identifier: str) -> None:
        base = self._base_of(pointer)
        try:
            uri, fragment = urldefrag(identifier)
            uri = urljoin(base, uri)
        except ValueError:  # refused where the schema is read; nothing else could refer to it
            return
        if fragment:  # how drafts 4 to 7 write an anchor
            self._anchors.setdefault((base, fragment), pointer)
        if uri != base:
            self._bases[pointer] = uri
            self._resources.setdefault(uri, pointer)


def _index_in(items: list[Json], step: str) -> int:
    if step.isascii() and step.isdecimal() and len(step) <= len(str(len(items))):
        index = int(step)
        if index < len(items) and str(index) == step:
            return index
    raise KeyError(step)


def _schemas(document: Json) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema of the document, outer ones first."""
    level: list[tuple[str, Json]] = [("", document)]
    while level:
        inner: list[tuple[str, Json]] = []
        for pointer, schema in level:
            if isinstance(schema, dict):
                yield pointer, schema
                for keyword, value in schema.items():
                    place = child(pointer, keyword)
                    inner += [(child(place, *s), one) for s, one in inner_schemas(keyword, value)]
        level = inner
