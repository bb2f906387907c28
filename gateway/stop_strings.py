"""Finds stop strings in text that arrives in pieces, and holds back no more than it must.

The rule, whatever the pieces: a stop fires with its last character, so the one that ends first
wins, and of two that end together the longer. The text before it goes out, nothing of it or after.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec


@dataclass(eq=False, slots=True)
class _Node:
    """A prefix of a stop string. `longest_match` is the length of the longest stop that ends
    here (0 = none), `fallback` the longest other prefix that is a suffix of this one."""

    depth: int
    children: dict[str, "_Node"] = field(default_factory=dict)
    longest_match: int = 0
    fallback: "_Node | None" = None


class Scan(msgspec.Struct, frozen=True):
    """`text` may be sent. When `is_stopped`, nothing may follow it."""

    text: str
    is_stopped: bool = False


class StopStrings:
    """The stop strings of one request, ready to be searched for; shared by its choices.
    Holds one small object per character."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._root = _build(stops)

    def scanner(self, *, includes_stop: bool = False) -> "StopScanner":
        """Begins the search in one choice's text."""
        return StopScanner(self._root, includes_stop=includes_stop)


class StopScanner:
    """How far into the stop strings the text of one choice is.

    Between calls exactly the longest suffix that is a proper prefix of some stop is held back.
    `num_settled_chars` counts what was let out; after a stop it is where the stop began, or where
    it ended with `includes_stop`.
    """

    def __init__(self, root: _Node, *, includes_stop: bool = False) -> None:
        self._root = root
        self._includes_stop = includes_stop
        self._node = root
        self._held = ""
        self.num_settled_chars = 0

    @property
    def has_stops(self) -> bool:
        """Whether there is anything to search for."""
        return bool(self._root.children)

    def feed(self, text: str, *, is_armed: bool = True) -> Scan:
        """Takes the next piece of text. While not armed (too few tokens were generated) no stop
        fires; a prefix that arrived by then still counts towards one that ends later."""
        if not self._held and self._root.children.keys().isdisjoint(text):
            return self._settle(text, len(text))  # no stop begins here
        buffer = self._held + text
        for end in range(len(self._held) + 1, len(buffer) + 1):
            self._node = self._advance(buffer[end - 1])
            if is_armed and self._node.longest_match:
                trimmed = 0 if self._includes_stop else self._node.longest_match
                scan = self._settle(buffer, end - trimmed)
                return Scan(text=scan.text, is_stopped=True)
            self._node = self._extendable(self._node)
        return self._settle(buffer, len(buffer) - self._node.depth)

    def flush(self) -> str:
        """The end of the text: what was held back is no stop."""
        self._node = self._root
        return self._settle(self._held, len(self._held)).text

    def _settle(self, buffer: str, num_chars: int) -> Scan:
        self._held = "" if num_chars == len(buffer) else buffer[num_chars:]
        self.num_settled_chars += num_chars
        return Scan(text=buffer[:num_chars])

    def _advance(self, char: str) -> _Node:
        node: _Node | None = self._node
        while node is not None:
            if char in node.children:
                return node.children[char]
            node = node.fallback
        return self._root

    def _extendable(self, node: _Node) -> _Node:
        """A whole stop that nothing can extend is no reason to hold text back."""
        while not node.children and node.fallback is not None:
            node = node.fallback
        return node


def _build(stops: Iterable[str]) -> _Node:
    """The automaton of Aho and Corasick over the stops."""
    root = _Node(depth=0)
    for stop in stops:
        node = root
        for char in stop:
            node = node.children.setdefault(char, _Node(depth=node.depth + 1))
        node.longest_match = len(stop)
    queue = deque([root])
    while queue:
        parent = queue.popleft()
        for char, child in parent.children.items():
            child.fallback = _fallback(parent, char, root=root)
            child.longest_match = child.longest_match or child.fallback.longest_match
            queue.append(child)
    return root


def _fallback(parent: _Node, char: str, *, root: _Node) -> _Node:
    node = parent.fallback
    while node is not None:
        if char in node.children:
            return node.children[char]
        node = node.fallback
    return root
