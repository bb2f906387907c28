"""Applies the table of parameters (parameter_table.py) to a request, before its values are read."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from gateway.errors import InvalidRequest
from gateway.parameter_table import PARAMETERS, Action, Endpoint, Parameter

MAX_NAMED = 32
UNKNOWN = "unknown"
MAX_NAME_LEN = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]")


class ParameterRules:
    """The rows of one endpoint. `is_strict` refuses names that the table does not know."""

    def __init__(self, endpoint: Endpoint, *, is_strict: bool = False) -> None:
        rows = [row for row in PARAMETERS if endpoint in row.endpoints]
        self._is_strict = is_strict
        self._exact = {row.name: row for row in rows if not row.is_pattern and not row.is_nested}
        self._patterns = [row for row in rows if row.is_pattern and not row.is_nested]
        self._nested: dict[str, list[Parameter]] = {}
        for row in rows:
            if row.is_nested:
                self._nested.setdefault(row.path[0], []).append(row)

    def check(self, body: Mapping[str, Any]) -> list[str]:
        """Names of given parameters that have no effect, in the order of the request.

        Raises: InvalidRequest for a parameter that is refused.
        """
        ignored: list[str] = []
        for name, value in body.items():
            if value is None:
                continue
            row = self._find(name)
            if row is None:
                self._check_unknown(name)
                ignored.append(name)
                continue
            ignored += self._apply(row, name, value, body=body)
            for nested in self._nested.get(name, ()):
                for inner in _values(value, nested.path[1:]):
                    ignored += self._apply(nested, nested.name, inner, body=body)
        return ignored

    def known(self, names: Sequence[str]) -> list[str]:
        """The names for a counter: those that the table does not know are one."""
        nested = {row.name for rows in self._nested.values() for row in rows}
        is_known = (name in nested or self._find(name) is not None for name in names)
        return [name if known else UNKNOWN for name, known in zip(names, is_known, strict=True)]

    def _find(self, name: str) -> Parameter | None:
        row = self._exact.get(name)
        if row is not None:
            return row
        return next((pattern for pattern in self._patterns if pattern.matches(name)), None)

    def _apply(
        self, row: Parameter, name: str, value: Any, *, body: Mapping[str, Any]
    ) -> Iterable[str]:
        if row.action is Action.IGNORED:
            return (name,)
        if row.action is Action.REFUSED and not row.is_harmless(value, body):
            raise InvalidRequest(
                f"Unsupported parameter: '{_safe(name)}'. {row.reason}",
                code="unsupported_parameter",
                param=_safe(name),
            )
        return ()

    def _check_unknown(self, name: str) -> None:
        if self._is_strict:
            raise InvalidRequest(
                f"Unknown parameter: '{_safe(name)}'.", code="unknown_parameter", param=_safe(name)
            )


class BodyRules(Protocol):
    """What is asked about the names in a body."""

    def check(self, body: Mapping[str, Any]) -> list[str]:
        """As ParameterRules has it."""

    def known(self, names: Sequence[str]) -> list[str]:
        """As ParameterRules has it."""


class RulesBySubject:
    """For bodies of several endpoints, told apart by what each is about. `rules` are the endpoints'
    by the name of that field; the first that a body has counts, or the first of all."""

    def __init__(self, rules: Mapping[str, ParameterRules]) -> None:
        self._rules = dict(rules)

    def subject_of(self, body: Mapping[str, Any]) -> str | None:
        """Which of the fields the body is about; None where it has none."""
        return next((name for name in self._rules if body.get(name) is not None), None)

    def check(self, body: Mapping[str, Any]) -> list[str]:
        subject = self.subject_of(body)
        first = next(iter(self._rules.values()))
        return (first if subject is None else self._rules[subject]).check(body)

    def known(self, names: Sequence[str]) -> list[str]:
        """What any of them knows is known."""
        answers = zip(*(rules.known(names) for rules in self._rules.values()), strict=True)
        return [
            name if name in found else UNKNOWN for name, found in zip(names, answers, strict=True)
        ]


def ignored_header(names: Sequence[str]) -> str:
    """The names as a header value: bounded, and of harmless characters only."""
    shown = [_safe(name) for name in dict.fromkeys(names)]
    if len(shown) > MAX_NAMED:
        shown = [*shown[:MAX_NAMED], "..."]
    return ",".join(shown)


def _safe(name: str) -> str:
    return _UNSAFE.sub("_", name[:MAX_NAME_LEN])


def _values(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """What stands at a path, in each element of the lists on the way."""
    if not path:
        if value is not None:
            yield value
    elif isinstance(value, list):
        for item in value:
            yield from _values(item, path)
    elif isinstance(value, dict) and path[0] in value:
        yield from _values(value[path[0]], path[1:])
