"""What a disk tier must hold, in the simplest form: a table, and the next one out by a search."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

PageName = tuple[bytes, int]  # root and number of the page


@dataclass(frozen=True, slots=True)
class NaiveFile:
    num_bytes: int
    used_ns: int
    is_sound: bool = True


class NaiveDisk:
    """`served` are the roots that somebody serves; the pages of others go first."""

    def __init__(self, *, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.files: dict[PageName, NaiveFile] = {}

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files.values())

    def order(self, *, served: set[bytes]) -> list[PageName]:
        """As they go."""
        return sorted(
            self.files, key=lambda name: (name[0] in served, self.files[name].used_ns, name)
        )

    def store(
        self, pages: Sequence[tuple[PageName, int]], *, now_ns: int, served: set[bytes]
    ) -> None:
        """Each page with the size of its file."""
        for place, (name, num_bytes) in enumerate(pages):
            known = self.files.get(name)
            if num_bytes > self.max_bytes:
                continue
            if known is not None and known.num_bytes == num_bytes:
                self.files[name] = replace(known, used_ns=now_ns - place)
                continue
            while self.num_bytes + num_bytes > self.max_bytes:
                del self.files[self.order(served=served)[0]]
            self.files[name] = NaiveFile(num_bytes, now_ns - place)

    def fetch(self, names: Sequence[PageName], *, now_ns: int) -> int:
        """How many come back."""
        for place, name in enumerate(names):
            file = self.files.get(name)
            if file is None or not file.is_sound:
                self.files.pop(name, None)
                return place
            self.files[name] = replace(file, used_ns=now_ns - place)
        return len(names)

    def touch(self, names: Sequence[PageName], *, now_ns: int) -> None:
        for place, name in enumerate(names):
            if name in self.files:
                self.files[name] = replace(self.files[name], used_ns=now_ns - place)
