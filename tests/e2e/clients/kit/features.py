"""What each Python client's check.py is made of: named checks, run in order, a JSON line for each.

It runs in the client's own environment, where of our code only this folder can be imported.
"""

import asyncio
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

BASE_URL = os.environ["BASE_URL"]
MODEL = os.environ["MODEL"]
API_KEY = os.environ["API_KEY"]
# Requests repeat their tokens; the limits keep a check to some seconds on one core.
MAX_TOKENS = 24
DETAIL_LEN = 600
CLIENTS = str(Path(__file__).resolve().parents[1])

Check = Callable[[], Any]
CheckType = TypeVar("CheckType", bound=Check)
T = TypeVar("T")


class Checks:
    """The checks of one client; `packages` are distributions whose versions the report names."""

    def __init__(self, *packages: str) -> None:
        self._packages = packages
        self._checks: dict[str, Check] = {}

    def feature(self, name: str) -> Callable[[CheckType], CheckType]:
        """Adds a function, async or not, that returns where the feature works and raises else."""

        def add(check: CheckType) -> CheckType:
            self._checks[name] = check
            return check

        return add

    def run(self) -> None:
        """Prints the versions and a line for each feature; a failure does not end the run.

        Features that are named on the command line are run alone.
        """
        _print_line({"packages": {name: version(name) for name in self._packages}})
        for name, check in self._checks.items():
            if len(sys.argv) > 1 and name not in sys.argv[1:]:
                continue
            detail = _failure(check)
            _print_line({"feature": name, "ok": not detail, "detail": detail})


def equal(got: object, wanted: object) -> None:
    """An assertion that shows both sides, as nothing rewrites `assert` here."""
    if got != wanted:
        raise AssertionError(f"{got!r} is not {wanted!r}")


def present(value: T | None) -> T:
    """The value, which must be there."""
    if value is None:
        raise AssertionError("a value is missing")
    return value


def raised(kind: type[BaseException], call: Callable[[], object]) -> Any:
    """The exception that the call raises, which must be of this kind."""
    try:
        got = call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected, and there is {got!r}")


def _failure(check: Check) -> str:
    """Why the check failed, in one line with the place; empty where it passed."""
    try:
        result = check()
        if inspect.iscoroutine(result):
            asyncio.run(result)
    # Whatever a client raises is what the report is about.
    except Exception as error:
        traceback.print_exc()
        reason = " ".join(str(error).split()) or "it does not hold"
        return f"{type(error).__name__}: {reason[:DETAIL_LEN]} [{_place(error)}]"
    return ""


def _place(error: Exception) -> str:
    """The line of a check, not of the client or of this file, that failed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if f.filename.startswith(CLIENTS) and f.filename != __file__]
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}: {ours[-1].line}" if ours else ""


def _print_line(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)
