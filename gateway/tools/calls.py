"""Calls as the whole gateway knows them: what may be called, and the pieces that calls come in."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

ToolMode = Literal["auto", "required", "named"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters` is the JSON text of its schema, in the
    client's key order. A strict tool's schema is enforced or the request refused; another's where
    it can be. `param` is where the request names it, for errors."""

    name: str
    parameters: str
    is_strict: bool = False
    param: str = "tools"


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """The tools that may be called, and how: as the model likes (auto), at least one (required),
    or just the only one in `tools` (named). `max_calls` None = any number."""

    tools: tuple[Tool, ...]
    mode: ToolMode = "auto"
    max_calls: int | None = None


@dataclass(frozen=True, slots=True)
class ToolFragment:
    """A piece of one tool call. The first of a call has its id and name and no arguments; the
    arguments of all, joined, are JSON. `index` counts the calls of a choice from 0."""

    index: int
    call_id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(eq=False, slots=True)
class CollectedCall:
    """A call as far as its pieces have come."""

    call_id: str
    name: str
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


def collect(calls: list[CollectedCall], fragments: Iterable[ToolFragment]) -> None:
    """Adds the next pieces of a choice's calls."""
    for fragment in fragments:
        if fragment.call_id is not None and fragment.name is not None:
            calls.append(CollectedCall(fragment.call_id, fragment.name))
        calls[fragment.index].pieces.append(fragment.arguments)
