"""A Lark grammar under construction: named rules and terminals, equal ones shared."""

import json
from collections.abc import Iterable


class Rules:
    """Grows only. Every name begins with `prefix`, so that grammars can be put together."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._rules: dict[str, tuple[str, ...]] = {}
        self._terminals: dict[str, str] = {}

    def name(self, stem: str) -> str:
        return f"{self._prefix}{stem}"

    def has(self, name: str) -> bool:
        return name in self._rules

    def reserve(self, name: str) -> None:
        """Marks a rule as known before its body is, for recursion."""
        self._rules.setdefault(name, ())

    def add(self, name: str, alternatives: Iterable[str]) -> str:
        """Sets a rule's body; an empty alternative is the empty text."""
        self._rules[name] = tuple(dict.fromkeys(alternatives))
        return name

    def terminal(self, expression: str) -> str:
        """The name of the terminal with this body."""
        name = self._terminals.get(expression)
        if name is None:
            name = self._terminals[expression] = f"{self._prefix.upper()}T{len(self._terminals)}"
        return name

    def text(self) -> str:
        """The grammar, in the order in which its parts were made."""
        lines = [f"{name}: {' | '.join(body)}" for name, body in self._rules.items()]
        lines += [f"{name}: {expression}" for expression, name in self._terminals.items()]
        return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """A Lark string that stands for the text itself. Of the characters that JSON leaves as they are
    Lark takes all but one."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")


def repeated(item: str, low: int, high: int | None) -> str:
    """`item` low to high times; "" where that is never."""
    if high == 0:
        return ""
    if (low, high) == (1, 1):
        return item
    if high is None:
        return f"({item})" + ("*" if low == 0 else "+" if low == 1 else f"{{{low},}}")
    return f"({item})" + ("?" if (low, high) == (0, 1) else f"{{{low},{high}}}")
