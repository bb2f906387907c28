"""What outlines-core is given for a constraint: one regex. Plain work on text, without the library,
whose own reading of JSON Schema ignores most bounds and is not used.
"""

from grammar.ecma_regex import rust_pattern
from grammar.errors import UnsupportedConstraint
from grammar.gbnf import ROOT, parse_gbnf
from grammar.gbnf_checks import checked
from grammar.lark_regex import lark_to_regex
from grammar.lexeme_phrases import Cutter, Lexeme, Run
from grammar.lexemes import language
from grammar.literals import checked_regex, choice_strings, escaped_regex
from grammar.schema.compiler import compile_schema, not_enforced
from grammar.schema.terminals import rust_plain_text
from grammar.spec import ConstraintSpec, PreparedConstraint

JSON_OBJECT = '{"type":"object"}'


def prepare_for_outlines(spec: ConstraintSpec) -> PreparedConstraint:
    """Raises: UnsupportedConstraint for what is no regular language, or not known to be one."""
    match spec.kind:
        case "regex":
            return _prepared(rust_pattern(checked_regex(spec.value), pointer=""))
        case "choice":
            return _prepared("|".join(map(escaped_regex, choice_strings(spec.value))))
        case "gbnf":
            return _prepared(_gbnf_regex(spec.value))
        case "json_schema" | "json_object":
            return _prepare_schema(spec)
    raise UnsupportedConstraint(f"outlines takes no constraint of kind {spec.kind}")


def _prepared(regex: str) -> PreparedConstraint:
    return PreparedConstraint("outlines", "regex", regex)


def _prepare_schema(spec: ConstraintSpec) -> PreparedConstraint:
    text = spec.value if spec.kind == "json_schema" else JSON_OBJECT
    compiled = compile_schema(text, whitespace=spec.allows_whitespace)
    if compiled.gaps and not spec.allows_checked:
        raise not_enforced(compiled.gaps[0])
    return PreparedConstraint("outlines", "regex", lark_to_regex(compiled.lark), compiled.gaps)


def _gbnf_regex(text: str) -> str:
    try:
        root = Cutter(checked(parse_gbnf(text))).phrases()[ROOT]
    except RecursionError as error:
        raise UnsupportedConstraint("the grammar is nested too deeply") from error
    is_optional = isinstance(root, Run) and (root.low, root.high) == (0, 1)
    lexeme = root.item if isinstance(root, Run) and is_optional else root
    if not isinstance(lexeme, Lexeme):
        raise UnsupportedConstraint("a grammar with recursion cannot be written as a regex")
    regex = rust_plain_text(language(lexeme.node))
    assert regex is not None, "a grammar has neither And nor Not"
    return f"(?:{regex})?" if is_optional else regex
