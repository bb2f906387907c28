"""Reads llguidance's Lark dialect as far as a client may use it: which rules there are, what they
need, and where inline schemas stand.
"""

from dataclasses import dataclass

from grammar import gbnf_nodes as nodes
from grammar.gbnf import MAX_DEPTH, MAX_REPETITIONS
from grammar.gbnf_nodes import Name, Node, Text
from grammar.lark_tokens import Word, lark_words

START = "start"
ATTRIBUTES = frozenset({"capture", "lazy", "suffix"})
SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
BUILT_IN = "common"
# Stands for all texts that are not empty: here only counts whether a rule can end.
SOMETHING = Text("x")


@dataclass(frozen=True, slots=True)
class InlineSchema:
    """A `%json` with its value: offsets from the keyword to the value's end."""

    text: str
    start: int
    end: int
    line: int


class LarkReader:
    """One pass over one text; the result lies in `rules`, `schemas` and `ignores`."""

    def __init__(self, text: str) -> None:
        self._words = list(lark_words(text))
        self._position = 0
        self._depth = 0
        self._uses: dict[str, Word] = {}
        self.rules: dict[str, Node] = {}
        self.schemas: list[InlineSchema] = []
        self.ignores = False

    def read(self) -> None:
        """Raises: UnsupportedConstraint, with the line."""
        self._skip_newlines()
        while self._peek().kind != "end":
            word = self._next()
            if word.kind == "keyword":
                self._statement(word)
            elif word.kind == "name":
                self._definition(word)
            else:
                raise word.error("a rule was expected: name: ...")
            if self._peek().kind not in ("newline", "end"):
                raise self._peek().error(f"{self._peek().text!r} is not expected here")
            self._skip_newlines()
        if START not in self.rules:
            raise self._peek().error("the grammar has no rule 'start'")
        for name, word in self._uses.items():
            if name not in self.rules:
                raise word.error(f"the rule {name!r} is not defined")

    def _statement(self, word: Word) -> None:
        if word.text == "%ignore":
            self._choice()
            self.ignores = True
        elif word.text == "%import":
            self._import(word)
        elif word.text != "%llguidance" or self._next().text.split() not in (["{}"], ["{", "}"]):
            raise word.error(f"{word.text} is not supported")

    def _import(self, statement: Word) -> None:
        path = self._next()
        if path.text != BUILT_IN or not self._take("."):
            raise statement.error("only 'common' can be imported from")
        while not self._is_at_line_end():
            word = self._next()
            if word.kind == "name":
                self.rules[word.text] = SOMETHING

    def _definition(self, word: Word) -> None:
        name = _plain(word.text)
        if name in self.rules:
            raise word.error(f"the rule {name!r} is defined twice")
        if self._take("["):
            self._attributes()
        if self._peek().text in ("::", "{"):
            raise word.error("rules with parameters are not supported")
        self._expect(":")
        self.rules[name] = self._choice()

    def _attributes(self) -> None:
        while not self._take("]"):
            word = self._next()
            if word.text not in ATTRIBUTES:
                raise word.error(f"the attribute {word.text!r} is not supported")
            if self._take("="):
                self._atom()
            if self._peek().text != "]":
                self._expect(",")

    def _choice(self) -> Node:
        alternatives = [self._sequence()]
        while self._takes_bar():
            alternatives.append(self._sequence())
        return nodes.choice(alternatives)

    def _takes_bar(self) -> bool:
        """Also one at the beginning of the next line."""
        start = self._position
        self._skip_newlines()
        if self._take("|"):
            return True
        self._position = start
        return False

    def _sequence(self) -> Node:
        items: list[Node] = []
        while True:
            if self._depth:
                self._skip_newlines()
            if self._is_at_line_end() or self._peek().text in ("|", ")", "]"):
                return nodes.sequence(items)
            if self._take("->"):
                self._next()
                continue
            items.append(self._repeated(self._atom()))

    def _atom(self) -> Node:
        word = self._next()
        if word.text in ("(", "["):
            inner = self._group(word)
            return nodes.repeat(inner, 0, 1) if word.text == "[" else inner
        if word.kind == "string":
            if self._take(".."):
                self._next()
            return Text("") if word.text.rstrip("i") == '""' else SOMETHING
        if word.kind == "name":
            self._uses.setdefault(_plain(word.text), word)
            return Name(_plain(word.text))
        if word.text == "%json":
            value = self._next()
            self.schemas.append(InlineSchema(value.text, word.start, value.end, word.line))
        elif word.text == "%regex":
            self._next()
        elif word.kind != "regex":
            raise word.error(f"{word.text!r} is not supported here")
        return SOMETHING

    def _group(self, opening: Word) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise opening.error(f"groups are nested at most {MAX_DEPTH} deep")
        inner = self._choice()
        self._skip_newlines()
        self._expect(")" if opening.text == "(" else "]")
        self._depth -= 1
        return inner

    def _repeated(self, node: Node) -> Node:
        if self._peek().text in SIGNS:
            return nodes.repeat(node, *SIGNS[self._next().text])
        if self._take("~"):
            low = high = self._count()
            if self._take(".."):
                high = self._count()
            return nodes.repeat(node, low, high)
        if not self._take("{"):
            return node
        low = 0 if self._peek().text == "," else self._count()
        upper: int | None = low
        if self._take(","):
            upper = None if self._peek().text == "}" else self._count()
        self._expect("}")
        return nodes.repeat(node, low, upper)

    def _count(self) -> int:
        word = self._next()
        count = int(word.text) if word.kind == "number" and len(word.text) < 7 else -1
        if not 0 <= count <= MAX_REPETITIONS:
            raise word.error(f"a repetition has 0 to {MAX_REPETITIONS} times, not {word.text!r}")
        return count

    def _is_at_line_end(self) -> bool:
        return self._peek().kind in ("newline", "end")

    def _skip_newlines(self) -> None:
        while self._peek().kind == "newline":
            self._position += 1

    def _peek(self) -> Word:
        return self._words[self._position]

    def _next(self) -> Word:
        """Never goes beyond the word of kind "end"."""
        word = self._peek()
        self._position += word.kind != "end"
        return word

    def _take(self, sign: str) -> bool:
        is_there = self._peek().kind == "sign" and self._peek().text == sign
        self._position += is_there
        return is_there

    def _expect(self, sign: str) -> None:
        word = self._peek()
        if not self._take(sign):
            raise word.error(f"{sign!r} was expected, not {word.text!r}")


def _plain(name: str) -> str:
    """Without the marks that say how Lark shapes its tree."""
    return name.lstrip("!?")
