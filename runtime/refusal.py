"""Who lacked memory last, so that the same is not asked again in every step.

Owned by the scheduler, which says what there is.
"""

from dataclasses import dataclass

from runtime.request import Sequence


@dataclass(frozen=True, slots=True)
class Room:
    """What decides about memory: sequences that run, pages to be had, and how many have ever
    joined the queue."""

    num_running: int
    num_available: int
    num_joined: int


class LastRefusal:
    """It stands until a sequence has ended or pages were freed."""

    def __init__(self) -> None:
        self._sequence: Sequence | None = None
        self._room = Room(0, 0, 0)

    def note(self, sequence: Sequence, room: Room) -> None:
        """The sequence found no memory."""
        self._sequence, self._room = sequence, room

    def concerns(self, sequence: Sequence, room: Room) -> bool:
        """Whether it would be refused again. Another that is looked at takes its place."""
        if self._sequence is sequence and self._stands(room):
            self._room = room
            return True
        self._sequence = None
        return False

    def is_final(self, room: Room) -> bool:
        """Whether nobody would be let in now: nor has one come since that might do with less."""
        return self._stands(room) and room.num_joined == self._room.num_joined

    def _stands(self, room: Room) -> bool:
        return (
            self._sequence is not None
            and room.num_running >= self._room.num_running
            and room.num_available <= self._room.num_available
        )
