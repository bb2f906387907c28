"""What a request may demand of its output, as plain data that can cross processes.

A `ConstraintSpec` is what the client asked for; a `PreparedConstraint` what an engine made of it:
a grammar in the engine's own notation, ready to be built into a matcher.
"""

import hashlib
from typing import Literal

import msgspec

ConstraintKind = Literal["json_schema", "json_object", "regex", "choice"]
EngineName = Literal["llguidance", "xgrammar"]
GrammarForm = Literal["lark", "json_schema", "regex", "ebnf"]
Enforcement = Literal["enforced", "checked"]


class ConstraintSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One constraint, and the engine that shall enforce it.

    `value` is the JSON text of the schema in the client's key order (json_schema), the pattern
    (regex), or a JSON array of strings (choice); empty for json_object. `allows_checked` says that
    the mask may enforce a superset if the finished text is validated.
    """

    kind: ConstraintKind
    value: str = ""
    engine: EngineName = "llguidance"
    allows_checked: bool = False

    def key(self) -> str:
        """SHA-256 over all fields: equal constraints are tried out once."""
        return _digest(self.engine, self.kind, str(self.allows_checked), self.value)


class Gap(msgspec.Struct, frozen=True):
    """A keyword that the mask does not enforce: where it stands (JSON Pointer), and why."""

    pointer: str
    keyword: str
    reason: str


class PreparedConstraint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A constraint as `engine` is given it. With `gaps` the grammar allows more than was asked
    for, and the text has to be validated."""

    engine: EngineName
    form: GrammarForm
    grammar: str
    gaps: tuple[Gap, ...] = ()

    @property
    def enforcement(self) -> Enforcement:
        return "checked" if self.gaps else "enforced"

    def key(self) -> str:
        """SHA-256 over engine, form and grammar: equal grammars are built once."""
        return _digest(self.engine, self.form, self.grammar)


def _digest(*parts: str) -> str:
    text = "\x00".join(parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
