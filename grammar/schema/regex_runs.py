"""Repetitions of one class of characters, and of one node, as counts."""

from collections.abc import Iterable

from grammar.schema import characters
from grammar.schema.characters import CharSet
from grammar.schema.regex_nodes import Chars, Regex, Repeat, Text

Run = tuple[CharSet, int, int | None]


def run_of(node: Regex) -> Run | None:
    """(characters, lowest count, highest count) of what repeats one class."""
    counted = node if isinstance(node, Repeat) else None
    inner = counted.node if counted else node
    low, high = (counted.low, counted.high) if counted else (1, 1)
    if isinstance(inner, Chars):
        return inner.members, low, high
    if isinstance(inner, Text) and len(inner.text) == 1:
        return characters.characters(inner.text), low, high
    return None


def is_run(text: str, run: Run) -> bool:
    """Whether the whole text is one of the repetitions."""
    members, low, high = run
    is_long_enough = low <= len(text) and (high is None or len(text) <= high)
    return is_long_enough and all(characters.contains(members, ord(c)) for c in set(text))


def touching_counts(runs: Iterable[Run]) -> list[tuple[int, int | None]]:
    """Lowest and highest counts, those that overlap or touch as one."""
    merged: list[tuple[int, int | None]] = []
    for _, low, high in sorted(runs, key=lambda run: run[1]):
        if merged and ((last := merged[-1][1]) is None or low <= last + 1):
            end = None if last is None or high is None else max(last, high)
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((low, high))
    return merged


def counts_of(node: Regex) -> tuple[Regex, int, int | None]:
    """(what is repeated, lowest count, highest count); once, if it is no repetition."""
    return (node.node, node.low, node.high) if isinstance(node, Repeat) else (node, 1, 1)
