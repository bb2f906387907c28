"""What is done to a GBNF grammar before an engine sees it: rules that cannot end are refused, and
recursion at an end is written as a repetition.
"""

from collections.abc import Callable

from grammar import gbnf_nodes as nodes
from grammar.errors import UnsupportedConstraint
from grammar.gbnf import ROOT, Grammar
from grammar.gbnf_nodes import Chars, Choice, Name, Node, Repeat, Rules, Sequence, Text

Judgement = Callable[[Node, frozenset[str]], bool]


def checked(grammar: Grammar) -> Rules:
    """The rules that `root` needs, every one of which has a finite text.

    Raises: UnsupportedConstraint for rules that cannot end, and where no text but the empty one
    is allowed.
    """
    rules = bounded(grammar.rules, ROOT)
    if not any(map(_has_characters, rules.values())):
        raise UnsupportedConstraint("the grammar allows only the empty text")
    return {name: _as_repetition(name, node) for name, node in rules.items()}


def bounded(rules: Rules, root: str) -> Rules:
    """The rules that `root` needs. Raises: UnsupportedConstraint where one cannot end."""
    rules = _reachable(rules, root)
    bounded_rules = _rules_that(rules, _can_end)
    for name in rules:
        if name not in bounded_rules:
            raise UnsupportedConstraint(
                f"the rule {name!r} has no finite text: each way through it leads into it again"
            )
    return rules


def _reachable(rules: Rules, root: str) -> dict[str, Node]:
    seen = {root}
    waiting = [root]
    while waiting:
        fresh = set(nodes.names_in(rules[waiting.pop()])) - seen
        seen |= fresh
        waiting += fresh
    return {name: node for name, node in rules.items() if name in seen}


def _rules_that(rules: Rules, judge: Judgement) -> frozenset[str]:
    """The smallest set of rules for which `judge` holds, given the set itself."""
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, node in rules.items():
        for used in set(nodes.names_in(node)):
            users[used].append(name)
    known: frozenset[str] = frozenset()
    waiting = set(rules)
    while waiting:
        fresh = {n for n in waiting if n not in known and judge(rules[n], known)}
        known |= fresh
        waiting = {user for name in fresh for user in users[name]}
    return known


def _can_end(node: Node, known: frozenset[str]) -> bool:
    match node:
        case Text() | Chars():
            return True
        case Name():
            return node.name in known
        case Sequence():
            return all(_can_end(item, known) for item in node.items)
        case Choice():
            return any(_can_end(item, known) for item in node.items)
        case Repeat():
            return node.low == 0 or _can_end(node.node, known)


def _has_characters(node: Node) -> bool:
    """Every rule can end, so that each character in it is in some text."""
    match node:
        case Text():
            return bool(node.text)
        case Chars():
            return True
    return any(map(_has_characters, nodes.children(node)))


def _as_repetition(name: str, node: Node) -> Node:
    """`a ::= x a | y` as `a ::= x* y`, and `a ::= a x | y` as `a ::= y x*`: the same texts, but
    a parser need not remember where each round began."""
    alternatives = node.items if isinstance(node, Choice) else (node,)
    itself = Name(name)
    before: list[Node] = []
    after: list[Node] = []
    others: list[Node] = []
    for item in alternatives:
        parts = item.items if isinstance(item, Sequence) else (item,)
        if parts == (itself,):
            continue
        if parts[-1] == itself and not after:
            before.append(nodes.sequence(list(parts[:-1])))
        elif parts[0] == itself and not before:
            after.append(nodes.sequence(list(parts[1:])))
        else:
            others.append(item)
    rest = nodes.choice(others)
    if before:
        return nodes.sequence([nodes.repeat(nodes.choice(before), 0, None), rest])
    return nodes.sequence([rest, nodes.repeat(nodes.choice(after), 0, None)]) if after else rest
