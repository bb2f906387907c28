"""A GBNF grammar in llguidance's Lark dialect, for grammar.llguidance_engine."""

from itertools import count

from grammar.errors import UnsupportedConstraint
from grammar.gbnf import ROOT, parse_gbnf
from grammar.gbnf_checks import checked
from grammar.gbnf_nodes import Name, Node
from grammar.lexeme_phrases import Lexeme, Options, Phrase, Row, Run
from grammar.lexemes import cut_into_lexemes, language
from grammar.schema.terminals import plain_text


def gbnf_to_lark(text: str) -> str:
    """Raises: UnsupportedConstraint for what is no grammar, or has no finite text."""
    try:
        return _Lark().grammar(cut_into_lexemes(checked(parse_gbnf(text))))
    except RecursionError as error:
        raise UnsupportedConstraint("the grammar is nested too deeply") from error


class _Lark:
    """Names rules and terminals anew: Lark wants the ones in small letters, the others in large."""

    def __init__(self) -> None:
        self._rule_names: dict[str, str] = {ROOT: "start"}
        self._terminals: dict[Node, str] = {}
        self._numbers = count(1)

    def grammar(self, phrases: dict[str, Phrase]) -> str:
        rules = [f"{self._rule(name)}: {self._text(phrases[name])}" for name in phrases]
        terminals = [
            f"{name}: {plain_text(language(node))}" for node, name in self._terminals.items()
        ]
        return "\n".join((*rules, *terminals))

    def _text(self, phrase: Phrase) -> str:
        match phrase:
            case Lexeme():
                return self._terminals.setdefault(phrase.node, f"T{len(self._terminals)}")
            case Name():
                return self._rule(phrase.name)
            case Row():
                return " ".join(map(self._grouped, phrase.items)) or '""'
            case Options():
                return " | ".join(map(self._text, phrase.items))
            case Run():
                return self._grouped(phrase.item) + _counts(phrase)

    def _grouped(self, phrase: Phrase) -> str:
        text = self._text(phrase)
        return text if isinstance(phrase, Lexeme | Name) else f"({text})"

    def _rule(self, name: str) -> str:
        if name not in self._rule_names:
            self._rule_names[name] = f"r{next(self._numbers)}"
        return self._rule_names[name]


def _counts(run: Run) -> str:
    signs = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    high = "" if run.high is None else run.high
    return signs.get((run.low, run.high), f"{{{run.low},{high}}}")
