"""Writers of a cache folder that are killed at random moments, and a reader that looks on."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prefix_cache.tiers.disk_tier import DiskTier
from prefix_cache.tiers.page_file import encoded_len
from tests.tier_writer import NUM_NUMBERS, ROOT, killed_page

MAX_PAGES = 24
LONGEST_LIFE_S = 0.06


@dataclass
class KillReport:
    """What was seen. `wrong` are payloads that were not those of the page asked for."""

    num_kills: int = 0
    num_fetched: int = 0
    num_drafts: int = 0
    most_bytes: int = 0
    max_bytes: int = 0
    wrong: list[int] = field(default_factory=list)
    rejected: dict[str, int] = field(default_factory=dict)
    num_failures: int = 0


class Kills:
    """One folder, `num_writers` at a time."""

    def __init__(self, folder: Path, *, seed: int, num_writers: int = 1) -> None:
        self._folder = folder
        self._rng = random.Random(seed)
        self._num_writers = num_writers
        self._pages = [killed_page(number) for number in range(NUM_NUMBERS)]
        self._page_bytes = encoded_len(self._pages[0].key, self._pages[0].payload)
        self._reader = DiskTier(folder, root=ROOT, max_bytes=MAX_PAGES * self._page_bytes)
        # Each further writer may be over by what it writes between two looks at the folder, which
        # is a 32nd and the page that follows; each may have a draft, and so may each dead one.
        others = (num_writers - 1) * (self._page_bytes + MAX_PAGES * self._page_bytes // 32)
        self.report = KillReport(max_bytes=MAX_PAGES * self._page_bytes + others)

    def play(self, num_kills: int) -> KillReport:
        """Raises what the reader raises."""
        self._reader.start()
        while self.report.num_kills < num_kills:
            writers = [self._start_writer() for _ in range(self._num_writers)]
            try:
                self._read_for(self._rng.uniform(0, LONGEST_LIFE_S))
            finally:
                for writer in writers:
                    writer.send_signal(signal.SIGKILL)
                    writer.wait()
                    if writer.stdout is not None:
                        writer.stdout.close()
            self.report.num_kills += 1
            self._look_at_files()
            self._read_all()
        self._reader.start()
        assert self._drafts() == []
        self.report.rejected = dict(self._reader.counts.rejected)
        self.report.num_failures = self._reader.counts.num_failures
        self._reader.close()
        return self.report

    def _start_writer(self) -> "subprocess.Popen[bytes]":
        """Returns when it has begun to store."""
        arguments = [str(self._folder), str(MAX_PAGES * self._page_bytes)]
        arguments.append(str(self._rng.randrange(2**32)))
        command = [sys.executable, "-m", "tests.tier_writer", *arguments]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"storing\n"
        return writer

    def _read_for(self, duration_s: float) -> None:
        until = time.monotonic() + duration_s
        while time.monotonic() < until:
            self._read(self._rng.sample(range(NUM_NUMBERS), 3))

    def _read_all(self) -> None:
        for number in range(NUM_NUMBERS):
            self._read([number])

    def _read(self, numbers: Sequence[int]) -> None:
        found = self._reader.fetch([self._pages[number].key for number in numbers])
        for number, payload in zip(numbers, found, strict=False):
            self.report.num_fetched += 1
            if payload != self._pages[number].payload:
                self.report.wrong.append(number)

    def _look_at_files(self) -> None:
        """While nobody writes."""
        sizes = [path.stat().st_size for path in self._folder.glob("*/??/*")]
        self.report.most_bytes = max(self.report.most_bytes, sum(sizes))
        self.report.num_drafts += len(self._drafts())

    def _drafts(self) -> list[Path]:
        return list(self._folder.rglob("*.tmp"))
