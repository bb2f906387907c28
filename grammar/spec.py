"""What a request may demand of its output, as plain data that can cross processes.

A `ConstraintSpec` is what the client asked for; a `PreparedConstraint` what an engine made of it:
a grammar in the engine's own notation, ready to be built into a matcher.
"""

import hashlib
import re
from typing import Literal

import msgspec

ConstraintKind = Literal[
    "json_schema", "json_object", "regex", "choice", "gbnf", "lark", "structural_tag", "tool_calls"
]
EngineName = Literal["llguidance", "xgrammar", "outlines"]
EngineChoice = Literal[EngineName, "auto"]
GrammarForm = Literal["lark", "json_schema", "spaced_json_schema", "regex", "ebnf"]
Enforcement = Literal["enforced", "checked"]
GBNF_RULE = re.compile(r"^[ \t]*[\w-]+\s*::=", re.MULTILINE)


class ConstraintSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One constraint, and the engine that shall enforce it.

    `value` is the JSON text of the schema in the client's key order (json_schema), the pattern
    (regex), a JSON array of strings (choice), the grammar's text (gbnf, lark), the JSON text of
    tags and triggers (structural_tag) or of a grammar.tool_calls.ToolCalls (tool_calls, which no
    client sends: it may name control tokens); empty for json_object. `allows_checked` says that the
    mask may enforce a superset if the finished text is validated, `allows_whitespace` that JSON may
    have a bounded amount of whitespace between its tokens.
    """

    kind: ConstraintKind
    value: str = ""
    engine: EngineChoice = "auto"
    allows_checked: bool = False
    allows_whitespace: bool = False

    def key(self) -> str:
        """SHA-256 over all fields: equal constraints are tried out once."""
        options = f"{self.allows_checked} {self.allows_whitespace}"
        return _digest(self.engine, self.kind, options, self.value)


class Reasoning(msgspec.Struct, frozen=True, omit_defaults=True):
    """A block of free text before the constrained answer, ended by the tokens `end_ids` in a row.

    With `is_open` the prompt has begun the block; otherwise the model may begin it with
    `start_ids`, or answer at once.
    """

    end_ids: tuple[int, ...]
    start_ids: tuple[int, ...] = ()
    is_open: bool = False


def grammar_kind(text: str) -> Literal["gbnf", "lark"]:
    """Which of the two notations a grammar is in that a client sends under one name: GBNF and its
    relatives define rules with "::=", Lark with ":"."""
    return "gbnf" if GBNF_RULE.search(text) else "lark"


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
    reasoning: Reasoning | None = None

    @property
    def enforcement(self) -> Enforcement:
        return "checked" if self.gaps else "enforced"

    def key(self) -> str:
        """SHA-256 over all that a matcher depends on: equal ones are built once."""
        return _digest(self.engine, self.form, repr(self.reasoning), self.grammar)


def _digest(*parts: str) -> str:
    text = "\x00".join(parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
