"""Which metrics and labels a PromQL query asks for, read from its text: enough for the queries of
dashboards and rules, and an error for what it cannot tell.

`sum by (labels) (...)` is read, `sum(...) by (labels)` is refused.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z_:][\w:]*")
_STRING = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_MATCHER = re.compile(r"\s*(\w+)\s*(=~|!~|!=|=)\s*\"((?:[^\"\\]|\\.)*)\"\s*,?")
_SKIPPED = re.compile(r"\s+|\[[^\]]*\]|[\d.]+(?:e[+-]?\d+)?[smhdw]?|[-+*/%^<>=!(),]")
_GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = {"and", "or", "unless", "offset", "bool"}


@dataclass(frozen=True, slots=True)
class Matcher:
    label: str
    operator: str
    value: str


@dataclass(frozen=True, slots=True)
class Selector:
    """`grouped_by`: labels by which it is aggregated or matched around it."""

    metric: str
    matchers: tuple[Matcher, ...]
    grouped_by: frozenset[str]


class UnreadableQuery(ValueError):
    """The query has something that is not read here."""


def plain(query: str) -> str:
    """Grafana's variables become what they could stand for."""
    return query.replace("$__rate_interval", "5m").replace("$__range", "1h")


def selectors(query: str) -> list[Selector]:
    """Raises: UnreadableQuery."""
    found, end = _read(plain(query), 0, frozenset())
    if end != len(plain(query)):
        raise UnreadableQuery(f"one parenthesis too many: {query}")
    return found


def outer_labels(query: str) -> frozenset[str] | None:
    """By which labels its result is told apart; None where that is left to the metrics."""
    found = re.match(r"(?:topk\(|[^(])*?\bby\s*\(([^)]*)\)", plain(query))
    return frozenset(_labels(found[1])) if found else None


def _read(text: str, at: int, around: frozenset[str]) -> tuple[list[Selector], int]:
    """Up to the parenthesis that closes what began before `at`, or to the end."""
    found: list[Selector] = []
    inner = around
    while at < len(text):
        if text[at] == ")":
            return found, at
        if text[at] == "(":
            more, end = _read(text, at + 1, inner)
            if end >= len(text):
                raise UnreadableQuery(f"a parenthesis is open: {text}")
            found, at, inner = found + more, end + 1, around
            if re.match(r"\s*(by|without)\b", text[at:]):
                raise UnreadableQuery(f"grouping behind an aggregation: {text}")
        elif skipped := _STRING.match(text, at) or _SKIPPED.match(text, at):
            at = skipped.end()
        elif name := _NAME.match(text, at):
            at, labels, selector = _word(text, name, inner)
            inner = inner | labels
            found += [selector] if selector else []
        else:
            raise UnreadableQuery(f"{text[at:]!r} in {text}")
    return found, at


def _word(
    text: str, name: re.Match[str], around: frozenset[str]
) -> tuple[int, frozenset[str], Selector | None]:
    at = name.end()
    if name[0] in _GROUPING:
        group = re.compile(r"\s*\(([^)]*)\)").match(text, at)
        if group is None:
            return at, frozenset(), None
        return group.end(), frozenset(_labels(group[1])), None
    if name[0] in _WORDS or re.match(r"\s*(\(|(?:by|without)\b)", text[at:]):
        return at, frozenset(), None
    matchers: tuple[Matcher, ...] = ()
    if text[at : at + 1] == "{":
        end = text.index("}", at)
        matchers = tuple(_matchers(text[at + 1 : end]))
        at = end + 1
    return at, frozenset(), Selector(name[0], matchers, around)


def _matchers(text: str) -> Iterator[Matcher]:
    at = 0
    while at < len(text):
        found = _MATCHER.match(text, at)
        if found is None:
            raise UnreadableQuery(f"{{{text}}}")
        yield Matcher(*found.groups())
        at = found.end()


def _labels(text: str) -> list[str]:
    return [label.strip() for label in text.split(",") if label.strip()]


def recorded(rules: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Of each recording rule, by its name, the labels that its series have."""
    return {name: outer_labels(query) or frozenset() for name, query in rules.items()}
