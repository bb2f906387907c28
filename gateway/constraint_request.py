"""From the fields of a request to the one constraint that its answer is held to.

Called where a body is read, so that a large schema is written out in that worker. What engines
make of the constraint is not known here.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.errors import InvalidRequest
from gateway.schemas.constraints import ConstraintFields, StructuredOutputs
from grammar.spec import ConstraintKind, ConstraintSpec, EngineChoice, grammar_kind

# A string of JSON, or whitespace outside of strings.
_STRING_OR_SPACE = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', re.DOTALL)
_BACKENDS: dict[str, EngineChoice] = {
    "auto": "auto",
    "llguidance": "llguidance",
    "guidance": "llguidance",
    "xgrammar": "xgrammar",
    "outlines": "outlines",
}
# vLLM's options after a colon: what they ask for is so in any case.
_BACKEND_OPTIONS = frozenset({"no-fallback", "disable-any-whitespace"})

# Of Responses, where an error names the part and not all of `text`.
TEXT_FORMAT = "text.format"

Reading = tuple[ConstraintKind, str]


@dataclass(frozen=True, slots=True)
class ConstraintRequest:
    """A constraint as a request words it. `param` is the field it came from; of `engine` and
    `allows_checked` None is left to the server."""

    kind: ConstraintKind
    value: str
    param: str
    engine: EngineChoice | None = None
    allows_checked: bool | None = None
    allows_whitespace: bool = False

    def spec(self, *, engine: EngineChoice, allows_checked: bool) -> ConstraintSpec:
        """With the server's settings for what the request leaves open."""
        return ConstraintSpec(
            kind=self.kind,
            value=self.value,
            engine=engine if self.engine is None else self.engine,
            allows_checked=allows_checked if self.allows_checked is None else self.allows_checked,
            allows_whitespace=self.allows_whitespace,
        )


def constraint_request(fields: ConstraintFields) -> ConstraintRequest | None:
    """None for a request that asks for plain text.

    Raises: InvalidRequest for two constraints, an unknown engine, and whitespace of a kind of its
    own.
    """
    found = list(_found(fields))
    if len(found) > 1:
        raise _two_constraints(found[0][0], found[1][0])
    outputs = fields.structured_outputs
    engine = _engine(fields, outputs)
    allows_whitespace = _allows_whitespace(fields, outputs)
    if not found:
        return None
    name, (kind, value) = found[0]
    inner = None if outputs is None else outputs.allow_checked
    return ConstraintRequest(
        kind=kind,
        value=value,
        param=_top(name),
        engine=engine,
        allows_checked=fields.allow_checked if inner is None else inner,
        allows_whitespace=allows_whitespace,
    )


def _found(fields: ConstraintFields) -> Iterator[tuple[str, Reading]]:
    """Every constraint of the request, with the name of its field."""
    for name, read in _READERS.items():
        value: Any = fields
        for step in name.split("."):
            # `json` is a method of the models.
            step = "json_" if step == "json" else step
            # Not every endpoint has every field.
            value = None if value is None else getattr(value, step, None)
        reading = None if value is None else read(value)
        if reading is not None:
            yield name, reading


def _response_format(value: Any) -> Reading | None:
    match value.type:
        case "json_schema":
            return "json_schema", _json_text(value.json_schema.schema_)
        case "json_object":
            return "json_object", ""
        case "structural_tag":
            tags = {"structures": value.structures, "triggers": value.triggers}
            return "structural_tag", _json_text(tags)
    return None


def _text_format(value: Any) -> Reading | None:
    match value.type:
        case "json_schema":
            return "json_schema", _json_text(value.schema_)
        case "json_object":
            return "json_object", ""
    return None


def _schema(value: Any) -> Reading:
    return "json_schema", _json_text(value)


def _structural_tag(value: Any) -> Reading:
    return "structural_tag", _json_text(value)


def _json_object(value: Any) -> Reading | None:
    return ("json_object", "") if value else None


def _regex(value: Any) -> Reading:
    return "regex", value


def _choice(value: Any) -> Reading:
    return "choice", _json_text(value)


def _grammar(value: Any) -> Reading:
    """Two notations share the fields."""
    return grammar_kind(value), value


# Every field that is a constraint.
_READERS: dict[str, Callable[[Any], Reading | None]] = {
    "response_format": _response_format,
    TEXT_FORMAT: _text_format,
    "structured_outputs.json": _schema,
    "structured_outputs.regex": _regex,
    "structured_outputs.choice": _choice,
    "structured_outputs.grammar": _grammar,
    "structured_outputs.json_object": _json_object,
    "structured_outputs.structural_tag": _structural_tag,
    "guided_json": _schema,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
    "regex": _regex,
    "ebnf": _grammar,
    "json_schema": _schema,
    "grammar": _grammar,
}


def _json_text(value: Any) -> str:
    """Compact, with the client's key order: equal schemas are one, however they are laid out. A
    client's own text is not read and written again, which would round its numbers."""
    if isinstance(value, str):
        return _STRING_OR_SPACE.sub(r"\1", value)
    return msgspec.json.encode(value).decode()


def _engine(fields: ConstraintFields, outputs: StructuredOutputs | None) -> EngineChoice | None:
    named = {"guided_decoding_backend": fields.guided_decoding_backend}
    if outputs is not None:
        named["structured_outputs.backend"] = outputs.backend
    given = {name: value for name, value in named.items() if value is not None}
    engines = {_backend(value, param=name) for name, value in given.items()}
    if len(engines) > 1:
        raise _two_constraints(*given)
    return engines.pop() if engines else None


def _backend(value: str, *, param: str) -> EngineChoice:
    name, _, options = value.partition(":")
    unknown = {option for option in options.split(",") if option} - _BACKEND_OPTIONS
    if name not in _BACKENDS or unknown:
        raise InvalidRequest(
            f"Unsupported value for '{param}': the engines are {', '.join(_BACKENDS)}.",
            code="unsupported_value",
            param=param,
        )
    return _BACKENDS[name]


def _allows_whitespace(fields: ConstraintFields, outputs: StructuredOutputs | None) -> bool:
    """Whether JSON may be spaced. Where and how much the grammars decide, as without a bound an
    answer can end in nothing else.

    Raises: InvalidRequest for a pattern that asks for anything else.
    """
    patterns = {"guided_whitespace_pattern": fields.guided_whitespace_pattern}
    is_compact = False
    if outputs is not None:
        patterns["structured_outputs.whitespace_pattern"] = outputs.whitespace_pattern
        is_compact = bool(outputs.disable_any_whitespace)
    given = {name: pattern for name, pattern in patterns.items() if pattern is not None}
    wishes = {name: _wants_space(pattern, param=name) for name, pattern in given.items()}
    if len({*wishes.values(), *((False,) if is_compact else ())}) > 1:
        raise _two_constraints(*given, "structured_outputs.disable_any_whitespace")
    return any(wishes.values())


def _wants_space(pattern: str, *, param: str) -> bool:
    if pattern == "":  # between the tokens of JSON there is then nothing
        return False
    if not _matches_space(pattern):
        raise InvalidRequest(
            f"Unsupported value for '{param}': JSON is compact, or has a bounded amount of"
            " whitespace where the pattern allows one space.",
            code="unsupported_value",
            param=param,
        )
    return True


def _matches_space(pattern: str) -> bool:
    """Whether one space is a whole match. In linear time, whatever the pattern."""
    # Few requests have one: the languages are loaded for the first that has.
    from grammar.errors import GrammarError
    from grammar.schema.patterns import parse_pattern
    from grammar.schema.regex import matches

    try:
        parse_pattern(pattern, reading="narrow")  # so that it cannot close the group below
        whole = parse_pattern(f"^(?:{pattern})$", reading="narrow")
    except GrammarError:
        return False
    return matches(whole, " ")


def _two_constraints(*names: str) -> InvalidRequest:
    shown = " and ".join(f"'{name}'" for name in names)
    return InvalidRequest(f"Only one of {shown} can be given.", param=_top(names[-1]))


def _top(name: str) -> str:
    """The parameter that a name with dots belongs to."""
    return name if name == TEXT_FORMAT else name.partition(".")[0]
