"""Arguments as a call of Python has them, `name="x", other=1`: rules for a schema of an object.

Values are JSON. Names come in the order of the schema, those that are optional there or not.
Called by grammar.tool_lark.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from grammar.embedded_schemas import EmbeddedSchemas
from grammar.errors import UnsupportedConstraint
from grammar.keyword_values import CHECKS
from grammar.schema.rules import quoted
from grammar.schema_document import Json, child, parse_schema

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A keyword with its equals sign, where the schema names none.
ANY_KEYWORD = f"/{NAME.pattern}=/"
_READ = frozenset({"type", "properties", "required", "additionalProperties"})
_SHARED = ("$schema", "$defs", "definitions")
_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "$comment", *_SHARED}
)
# References and what they mean, which a property keeps when it is taken out of its schema.
_LOCAL_REFERENCES = ("#/$defs/", "#/definitions/")
_ANCHORS = frozenset({"$id", "id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"})


class KeywordArguments:
    """Rules for one schema, named after `name`. One use: `emit` once."""

    def __init__(
        self, schema: str, *, name: str, pointer: str, schemas: EmbeddedSchemas, comma: str
    ) -> None:
        self._name = name
        self._pointer = pointer
        self._schemas = schemas
        self._comma = comma
        self._document = self._plain_object(schema)
        self._required = frozenset(self._document.get("required", ()))
        self.lines: list[str] = []

    def emit(self) -> str:
        """The name of the rule for everything between the parentheses.

        Raises: UnsupportedConstraint for a schema that says more than which properties there are.
        """
        properties = self._document.get("properties", {})
        others = self._document.get("additionalProperties", True)
        unnamed = self._required - properties.keys()
        if unnamed or (others is False and not properties):
            self._refuse_unnamed(unnamed)
            return self._add(self._name, [""])
        if not properties:
            return self._add(self._name, [self._any_pairs(others)])
        pairs = [(name, self._pair(name, inner)) for name, inner in properties.items()]
        ways = [self._some(pairs, "0")]
        return self._add(self._name, ways if self._required else [*ways, ""])

    def _plain_object(self, schema: str) -> dict[str, Any]:
        document = parse_schema(schema)
        if not isinstance(document, dict):
            raise self._refusal("", "is no object's")
        for keyword in document:
            if keyword not in _READ | _ANNOTATIONS:
                raise self._refusal(keyword, f"has {keyword!r}")
            if keyword in CHECKS:
                CHECKS[keyword](document[keyword], child(self._pointer, keyword), keyword)
        if document.get("type", "object") != "object":
            raise self._refusal("type", "is no object's")
        return document

    def _refuse_unnamed(self, unnamed: frozenset[str]) -> None:
        if unnamed:
            raise self._refusal("required", f"requires {min(unnamed)!r}, which it does not name")

    def _any_pairs(self, schema: Json) -> str:
        value = self._value(schema, "additionalProperties")
        pair = self._add(f"{self._name}_any", [f"{self._keyword_terminal()} {value}"])
        return f"({pair} ({self._comma} {pair})*)?"

    def _keyword_terminal(self) -> str:
        name = f"{self._name}_NAME".upper()
        self.lines.append(f"{name}: {ANY_KEYWORD}")
        return name

    def _pair(self, name: str, schema: Json) -> str:
        if NAME.fullmatch(name) is None:
            raise self._refusal("properties", f"has a property {name!r}, which is no name")
        return f"{quoted(f'{name}=')} {self._value(schema, 'properties', name)}"

    def _some(self, pairs: Sequence[tuple[str, str]], path: str) -> str:
        """At least one of the pairs, and all that are required. Halved, as nested rules are
        compiled by recursion."""
        if len(pairs) == 1:
            return pairs[0][1]
        middle = len(pairs) // 2
        left, right = pairs[:middle], pairs[middle:]
        first, second = self._some(left, f"{path}0"), self._some(right, f"{path}1")
        ways = [f"{first} {self._comma} {second}"]
        if not self._has_required(right):
            ways.append(first)
        if not self._has_required(left):
            ways.append(second)
        return self._add(f"{self._name}_{path}", ways)

    def _has_required(self, pairs: Sequence[tuple[str, str]]) -> bool:
        return any(name in self._required for name, _ in pairs)

    def _value(self, schema: Json, *steps: str) -> str:
        """The rule for a value, whose schema takes with it what it refers to."""
        pointer = child(self._pointer, *steps)
        has_references = False
        for keyword, target in _references(schema):
            if keyword != "$ref" or not str(target).startswith(_LOCAL_REFERENCES):
                raise self._refusal(steps[0], f"refers to {target!r}")
            has_references = True
        if has_references:
            shared = {key: self._document[key] for key in _SHARED if key in self._document}
            if shared.keys() & schema.keys():
                raise self._refusal(steps[0], "has definitions in two places")
            schema = shared | schema
        return self._schemas.rule(json.dumps(schema, ensure_ascii=False), pointer)

    def _add(self, name: str, ways: Sequence[str]) -> str:
        self.lines.append(f"{name}: {' | '.join(ways)}")
        return name

    def _refusal(self, keyword: str, reason: str) -> UnsupportedConstraint:
        pointer = child(self._pointer, keyword) if keyword else self._pointer
        return UnsupportedConstraint(
            f"arguments with keywords are the properties of an object: the schema {reason}",
            pointer=pointer,
            keyword=keyword or None,
        )


def _references(value: Json) -> Iterator[tuple[str, Json]]:
    """Keywords that point to another place, or are one that something may point to."""
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            yield from ((key, inner[key]) for key in ("$ref", *sorted(_ANCHORS)) if key in inner)
            waiting += inner.values()
        elif isinstance(inner, list):
            waiting += inner
