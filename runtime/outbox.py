"""What one engine step has to tell the gateways, by choice, numbered on its way out."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runtime.finish_rules import Ending
from runtime.messages import Abort, ChoiceUsage, EngineFault, TokenEvent, TokenLogprob
from runtime.request import Sequence

if TYPE_CHECKING:
    from runtime.batch import RowKey


@dataclass(eq=False, slots=True)
class _Draft:
    sequence: Sequence
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    admitted: bool = False
    ending: Ending | None = None
    error: EngineFault | None = None
    usage: ChoiceUsage | None = None

    def event(self) -> TokenEvent:
        sequence = self.sequence
        number, sequence.num_events = sequence.num_events, sequence.num_events + 1
        return TokenEvent(
            request_id=sequence.request.submit.request_id,
            choice=sequence.choice,
            seq=number,
            token_ids=self.token_ids,
            logprobs=self.logprobs,
            prompt_logprobs=self.prompt_logprobs,
            admitted=self.admitted,
            finish_reason=self.ending.reason if self.ending is not None else None,
            stop_token_id=self.ending.stop_token_id if self.ending is not None else None,
            error=self.error,
            phases=sequence.phases.take(),
            usage=self.usage,
        )


class Outbox:
    """At most one event a choice and step; none for what was aborted meanwhile."""

    def __init__(self) -> None:
        self._drafts: dict[RowKey, _Draft] = {}
        self._rejections: list[tuple[bytes, TokenEvent]] = []

    @property
    def is_empty(self) -> bool:
        return not self._drafts and not self._rejections

    def add_admitted(self, sequence: Sequence) -> None:
        self._draft(sequence).admitted = True

    def add_phases(self, sequence: Sequence) -> None:
        """Sends the phases that are ready even if the step gives the choice no token."""
        self._draft(sequence)

    def add_tokens(
        self, sequence: Sequence, token_ids: list[int], logprob: TokenLogprob | None
    ) -> None:
        """A step's tokens; where log-probabilities are wanted it is one token. With the first come
        those of the prompt."""
        draft = self._draft(sequence)
        draft.token_ids += token_ids
        if sequence.prompt_logprobs:
            draft.prompt_logprobs = sequence.take_prompt_logprobs()
        if logprob is not None:
            draft.logprobs.append(logprob)

    def add_finish(self, sequence: Sequence, ending: Ending) -> None:
        """A choice that is asked for no token has the log-probabilities of its prompt here."""
        draft = self._draft(sequence)
        if sequence.prompt_logprobs:
            draft.prompt_logprobs = sequence.take_prompt_logprobs()
        draft.ending, draft.usage = ending, sequence.usage()

    def add_error(self, sequence: Sequence, fault: EngineFault) -> None:
        self._draft(sequence).error = fault

    def add_rejection(
        self, gateway: bytes, request_id: str, *, choices: Iterable[int], fault: EngineFault
    ) -> None:
        """The only event of each choice of a request that never became one."""
        for choice in choices:
            event = TokenEvent(request_id, choice, 0, error=fault)
            self._rejections.append((gateway, event))

    def drop(self, sequence: Sequence) -> None:
        self._drafts.pop(sequence.key, None)

    def drop_rejections(self, gateway: bytes, abort: Abort | None = None) -> None:
        """Those of one gateway, or of what one abort names."""
        self._rejections = [
            (owner, event)
            for owner, event in self._rejections
            if owner != gateway or not _is_named(event, abort)
        ]

    def take(self) -> dict[bytes, list[TokenEvent]]:
        """All events by gateway; the outbox is empty afterwards."""
        events: dict[bytes, list[TokenEvent]] = {}
        for gateway, event in self._rejections:
            events.setdefault(gateway, []).append(event)
        for draft in self._drafts.values():
            events.setdefault(draft.sequence.request.gateway, []).append(draft.event())
        self._rejections, self._drafts = [], {}
        return events

    def _draft(self, sequence: Sequence) -> _Draft:
        return self._drafts.setdefault(sequence.key, _Draft(sequence))


def _is_named(event: TokenEvent, abort: Abort | None) -> bool:
    if abort is None:
        return True
    return event.request_id == abort.request_id and abort.choice in (None, event.choice)
