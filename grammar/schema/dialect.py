"""What the drafts of JSON Schema differ in. A schema without `$schema` is read as 2020-12 that
also knows the keywords and forms of older drafts, since that is how such schemas are written."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grammar.errors import UnsupportedConstraint
from grammar.keywords import DRAFTS, draft_uri
from grammar.schema_document import Json

NEWEST = 2020


@dataclass(frozen=True, slots=True)
class Dialect:
    """`draft` is 3 .. 7, 2019 or 2020; `is_declared` says that `$schema` named it."""

    draft: int
    is_declared: bool

    @property
    def id_keyword(self) -> str:
        return "id" if self.draft <= 4 else "$id"

    @property
    def ref_hides_siblings(self) -> bool:
        """Up to draft 7 whatever stands beside a `$ref` has no meaning."""
        return self.draft <= 7

    def knows(self, keyword: str) -> bool:
        """Whether the keyword has a meaning in this draft; unknown keywords are annotations."""
        first, last = LIFETIMES.get(keyword, (4, NEWEST))
        return first <= self.draft <= last or (not self.is_declared and first <= NEWEST)

    def keywords_of(self, schema: dict[str, Any]) -> Iterator[str]:
        """The keywords of a schema that have a meaning, in their order."""
        if "$ref" in schema and self.ref_hides_siblings:
            yield "$ref"
            return
        other_id = "$id" if self.id_keyword == "id" else "id"
        for keyword in schema:
            if keyword != other_id and self.knows(keyword):
                yield keyword


# Keyword -> first and last draft that gives it a meaning, where that is not all of 4 to 2020-12.
LIFETIMES = {
    "const": (6, NEWEST),
    "contains": (6, NEWEST),
    "propertyNames": (6, NEWEST),
    "if": (7, NEWEST),
    "then": (7, NEWEST),
    "else": (7, NEWEST),
    "dependencies": (4, 7),
    "additionalItems": (4, 2019),
    "dependentRequired": (2019, NEWEST),
    "dependentSchemas": (2019, NEWEST),
    "minContains": (2019, NEWEST),
    "maxContains": (2019, NEWEST),
    "unevaluatedItems": (2019, NEWEST),
    "unevaluatedProperties": (2019, NEWEST),
    "$recursiveRef": (2019, 2019),
    "$dynamicRef": (2020, NEWEST),
    "prefixItems": (2020, NEWEST),
}


def dialect_of(document: Json) -> Dialect:
    """The dialect that the root's `$schema` names. Raises: UnsupportedConstraint."""
    if not isinstance(document, dict) or "$schema" not in document:
        return Dialect(NEWEST, is_declared=False)
    uri = document["$schema"]
    if not isinstance(uri, str) or draft_uri(uri) not in DRAFTS:
        raise UnsupportedConstraint(
            "unknown $schema: drafts 4 to 2020-12 are understood",
            pointer="/$schema",
            keyword="$schema",
        )
    draft = DRAFTS[draft_uri(uri)]
    return Dialect(NEWEST, is_declared=False) if draft is None else Dialect(draft, is_declared=True)
