"""A GBNF grammar in xgrammar's notation, for grammar.xgrammar_engine: every character by its code
point, every rule under a name that means nothing else there.
"""

from grammar.errors import UnsupportedConstraint
from grammar.gbnf import ROOT, parse_gbnf
from grammar.gbnf_checks import checked
from grammar.gbnf_nodes import Chars, Choice, Name, Node, Repeat, Sequence, Text


def gbnf_to_ebnf(text: str) -> str:
    """Raises: UnsupportedConstraint for what is no grammar, or has no finite text."""
    try:
        rules = checked(parse_gbnf(text))
        names = {name: f"r{number}" for number, name in enumerate(rules)} | {ROOT: ROOT}
        return "\n".join(f"{names[name]} ::= {_text(rules[name], names)}" for name in rules)
    except RecursionError as error:
        raise UnsupportedConstraint("the grammar is nested too deeply") from error


def ebnf_string(text: str) -> str:
    """A literal, every character by its code point."""
    return '"' + "".join(map(_escaped, map(ord, text))) + '"'


def _text(node: Node, names: dict[str, str]) -> str:
    match node:
        case Text():
            return ebnf_string(node.text)
        case Chars():
            pairs = (f"{_escaped(low)}-{_escaped(high)}" for low, high in node.members.bounds)
            return f"[{''.join(pairs)}]"
        case Name():
            return names[node.name]
        case Sequence():
            return f"({' '.join(_text(item, names) for item in node.items)})"
        case Choice():
            return f"({' | '.join(_text(item, names) for item in node.items)})"
        case Repeat():
            high = "" if node.high is None else node.high
            return f"({_text(node.node, names)}){{{node.low},{high}}}"


def _escaped(code: int) -> str:
    return f"\\U{code:08x}"
