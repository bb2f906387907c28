"""What xgrammar is given for a constraint; plain work on text, without the library."""

from grammar.errors import UnsupportedConstraint
from grammar.gbnf_ebnf import ebnf_string, gbnf_to_ebnf
from grammar.literals import checked_regex, choice_strings
from grammar.spec import ConstraintSpec, GrammarForm, PreparedConstraint
from grammar.xgrammar_coverage import check_schema
from grammar.xgrammar_rules import check_xgrammar_regex

JSON_OBJECT = '{"type":"object"}'


def prepare_for_xgrammar(spec: ConstraintSpec) -> PreparedConstraint:
    """Raises: UnsupportedConstraint for what it would not enforce wholly."""
    form, grammar = _grammar(spec)
    return PreparedConstraint("xgrammar", form, grammar)


def _grammar(spec: ConstraintSpec) -> tuple[GrammarForm, str]:
    form: GrammarForm = "spaced_json_schema" if spec.allows_whitespace else "json_schema"
    match spec.kind:
        case "json_schema":
            return form, check_schema(spec.value)
        case "json_object":
            return form, JSON_OBJECT
        case "regex":
            return "regex", check_xgrammar_regex(checked_regex(spec.value))
        case "choice":
            return "ebnf", f"root ::= {' | '.join(map(ebnf_string, choice_strings(spec.value)))}"
        case "gbnf":
            return "ebnf", gbnf_to_ebnf(spec.value)
    # Its structural tags are not checked keyword by keyword, as its schemas are here.
    raise UnsupportedConstraint(f"xgrammar takes no constraint of kind {spec.kind}")
