"""Places in a schema without any word that a client chose, for what may be seen by others."""

from collections.abc import Iterable

from grammar.keywords import ANNOTATIONS, CONSTRAINTS, CONTAINERS

# What follows one of these is a name, or a pattern for names.
_NAMED = CONTAINERS | {
    "properties",
    "patternProperties",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
}
# Where the schemas of a grammar.tool_calls.ToolCalls are.
_OURS = frozenset({"calls", "content", "schema"})
_KNOWN = ANNOTATIONS | CONSTRAINTS | CONTAINERS | _OURS
ANYTHING = "*"
MAX_STEPS = 32


def known_keyword(keyword: str) -> str:
    """The keyword, or `*` for a word that no draft knows."""
    return keyword if keyword in _KNOWN else ANYTHING


def nameless_pointer(steps: Iterable[str | int]) -> str:
    """A JSON Pointer into a schema with `*` for names: `/properties/*/minimum`. Of a long one its
    last steps."""
    told: list[str] = []
    is_name = False
    for step in map(str, steps):
        is_index = step.isascii() and step.isdecimal()
        told.append(ANYTHING if is_name else step if is_index else known_keyword(step))
        is_name = not is_name and step in _NAMED
    return "".join(f"/{step}" for step in told[-MAX_STEPS:])
