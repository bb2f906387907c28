"""What every kind of answer has: its identity, and a finished choice before it takes wire shape."""

from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from gateway.errors import GatewayError
from gateway.generation import ChoiceFinished, LogprobEntry, TextDelta, Usage
from gateway.tools.calls import CollectedCall, collect


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """Equal on the answer and on each of its chunks. OpenAI repeats `service_tier` and `metadata`
    of the request."""

    id: str
    created: int
    model: str
    system_fingerprint: str
    num_choices: int
    has_logprobs: bool = False
    includes_usage: bool = False
    service_tier: str | None = None
    metadata: dict[str, str] | None = None


@dataclass(eq=False, slots=True)
class ChoiceResult:
    """One choice while it is collected."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    logprobs: list[LogprobEntry] = field(default_factory=list)
    tool_calls: list[CollectedCall] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    prompt_token_ids: tuple[int, ...] | None = None
    finish_reason: str = "stop"

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def reasoning(self) -> str | msgspec.UnsetType:
        """A key that is left out where there is no such text."""
        return "".join(self.thoughts) or msgspec.UNSET

    @property
    def shown_ids(self) -> list[int] | msgspec.UnsetType:
        """A key that is left out where ids were not asked for."""
        return msgspec.UNSET if self.prompt_token_ids is None else self.token_ids

    def add(self, delta: TextDelta) -> None:
        self.texts.append(delta.text)
        self.thoughts.append(delta.reasoning)
        self.logprobs.extend(delta.logprobs)
        self.token_ids.extend(delta.token_ids)
        if delta.prompt_token_ids is not None:
            self.prompt_token_ids = delta.prompt_token_ids
        collect(self.tool_calls, delta.tool_calls)


class Presenter(Protocol):
    """The wire shape of one endpoint: frames of a stream, or the body of a whole answer."""

    def opening(self) -> bytes:
        """Frames that come before everything else."""

    def delta(self, delta: TextDelta) -> bytes:
        """The frames of new text, reasoning first, tool calls last; b"" when the delta has nothing
        to show."""

    def finish(self, finished: ChoiceFinished) -> bytes: ...

    def closing(self, usage: Usage) -> bytes:
        """The usage chunk if asked for, and the end mark."""

    def failure(self, error: GatewayError) -> bytes:
        """How a stream fails after its status was sent."""

    def silence(self) -> bytes:
        """A chunk that says nothing, for clients that cannot read SSE comments."""

    def body(self, choices: list[ChoiceResult], usage: Usage) -> object:
        """The whole answer of a request that did not stream."""
