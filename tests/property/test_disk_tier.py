"""The disk tier against a naive model: with failures and crashes at any call to the system, and
with files that are damaged or cut at any place."""

import errno
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prefix_cache.tiers.disk_tier import DiskTier
from prefix_cache.tiers.page_file import encode_page, encoded_len
from prefix_cache.tiers.page_folder import file_name
from prefix_cache.tiers.tier import PageKey, StoredPage
from tests.faulty_os import crashing, failing
from tests.property.naive_disk import NaiveDisk, NaiveFile, PageName
from tests.tier_pages import key_of, payload_of, root_of

ROOT, OTHER_ROOT = root_of("model"), root_of("another model")
MAX_BYTES = 2600
NUM_NUMBERS = 12
MINUTE_NS = 60 * 10**9
# No page twice in one call: which use is the last would be a matter of taste.
BATCHES = st.lists(st.integers(0, NUM_NUMBERS - 1), min_size=1, max_size=6, unique=True)
CALLS = st.integers(1, 70)
ERRNOS = st.sampled_from([errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ENOENT])


def size_of(number: int) -> int:
    """The last number's page fits in nowhere."""
    return MAX_BYTES if number == NUM_NUMBERS - 1 else 100 + 90 * (number % 4)


def page(number: int) -> StoredPage:
    return StoredPage(key_of(number), payload_of(number, num_bytes=size_of(number)))


def keys_of(numbers: list[int]) -> list[PageKey]:
    return [key_of(number) for number in numbers]


def own(numbers: list[int]) -> list[PageName]:
    return [(ROOT, number) for number in numbers]


def sized(root: bytes, numbers: list[int]) -> list[tuple[PageName, int]]:
    return [
        ((root, number), encoded_len(page(number).key, page(number).payload)) for number in numbers
    ]


class DiskTierMachine(RuleBasedStateMachine):
    """One server with its model, and another model's server that comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="disk tier "))
        self.now_ns = 1_700_000_000 * 10**9
        self.model = NaiveDisk(max_bytes=MAX_BYTES)
        self.tier = self.started()

    def started(self, root: bytes = ROOT) -> DiskTier:
        tier = DiskTier(
            self.folder,
            root=root,
            max_bytes=MAX_BYTES,
            clock_ns=lambda: self.now_ns,
            monotonic_s=lambda: self.now_ns / 10**9,
        )
        tier.start()
        return tier

    def pass_time(self) -> int:
        """So much that each use is written down and no pause lasts."""
        self.now_ns += MINUTE_NS + 1000
        return self.now_ns

    @rule(numbers=BATCHES)
    def store(self, numbers: list[int]) -> None:
        self.model.store(sized(ROOT, numbers), now_ns=self.pass_time(), served={ROOT})
        self.tier.store([page(number) for number in numbers])

    @rule(numbers=BATCHES)
    def fetch(self, numbers: list[int]) -> None:
        num_pages = self.model.fetch(own(numbers), now_ns=self.pass_time())
        assert self.tier.fetch(keys_of(numbers)) == [
            page(number).payload for number in numbers[:num_pages]
        ]

    @rule(numbers=BATCHES)
    def count(self, numbers: list[int]) -> None:
        """Damage is not seen by it."""
        found = [name in self.model.files for name in own(numbers)]
        assert self.tier.count_leading(keys_of(numbers)) == [*found, False].index(False)

    @rule(numbers=BATCHES)
    def touch(self, numbers: list[int]) -> None:
        self.model.touch(own(numbers), now_ns=self.pass_time())
        self.tier.touch([key.identity for key in keys_of(numbers)])

    @rule(numbers=BATCHES, is_all=st.booleans())
    def forget(self, numbers: list[int], *, is_all: bool) -> None:
        self.tier.forget(None if is_all else [key.identity for key in keys_of(numbers)])
        for name in list(self.model.files) if is_all else own(numbers):
            if name[0] == ROOT:
                self.model.files.pop(name, None)

    @rule()
    def restart(self) -> None:
        self.tier.close()
        self.tier = self.started()

    @rule(numbers=BATCHES)
    def have_another_server_come_and_go(self, numbers: list[int]) -> None:
        other = self.started(OTHER_ROOT)
        served = {ROOT, OTHER_ROOT}
        self.model.store(sized(OTHER_ROOT, numbers), now_ns=self.pass_time(), served=served)
        other.store([page(number) for number in numbers])
        other.close()
        self.tier.start()

    @precondition(lambda self: self.model.files)
    @rule(choice=st.integers(0, 1000), place=st.integers(0, 10**6), is_cut=st.booleans())
    def damage(self, choice: int, place: int, *, is_cut: bool) -> None:
        name = sorted(self.model.files)[choice % len(self.model.files)]
        file, path = self.model.files[name], self.path_of(name)
        raw = bytearray(path.read_bytes())
        place %= len(raw) or 1
        if is_cut:
            del raw[place:]
        elif raw:
            raw[place] ^= 1 << choice % 8
        path.write_bytes(raw)
        os.utime(path, ns=(file.used_ns, file.used_ns))
        # The same bit twice is no damage.
        self.model.files[name] = NaiveFile(len(raw), file.used_ns, is_sound=self.is_sound(name))
        self.tier.start()

    @rule(numbers=BATCHES, call=CALLS, errno_=ERRNOS, kind=st.sampled_from(["store", "fetch"]))
    def fail(self, numbers: list[int], call: int, errno_: int, kind: str) -> None:
        before = dict(self.model.files)
        self.pass_time()
        with failing(errno_, first=call, last=call):
            if kind == "store":
                self.tier.store([page(number) for number in numbers])
            else:
                found = self.tier.fetch(keys_of(numbers))
                assert found == [page(number).payload for number in numbers[: len(found)]]
                assert set(before) - set(own(numbers)) <= set(self.files_on_disk())
        self.pass_time()
        self.tier.start()
        self.check_what_is_left(before, numbers)

    @rule(numbers=BATCHES, call=CALLS)
    def crash(self, numbers: list[int], call: int) -> None:
        before = dict(self.model.files)
        self.pass_time()
        with crashing(at=call):
            self.tier.store([page(number) for number in numbers])
        self.tier.close()  # as the end of a process does
        self.tier = self.started()
        assert list(self.folder.rglob("*.tmp")) == []
        self.check_what_is_left(before, numbers)

    def check_what_is_left(self, before: dict[PageName, NaiveFile], numbers: list[int]) -> None:
        """Nothing came but what was stored, and what went is what had to go first."""
        left = self.files_on_disk()
        for name in left:
            assert name in before or name in own(numbers)
        self.model.files = before
        concerned = [
            name
            for name in self.model.order(served={ROOT})
            if name not in own(numbers) and before[name].is_sound
        ]
        are_left = [name in left for name in concerned]
        assert are_left == sorted(are_left), "an older page has stayed"
        self.model.files = {
            name: NaiveFile(num_bytes, used_ns, is_sound=self.is_sound(name))
            for name, (num_bytes, used_ns) in left.items()
        }

    @invariant()
    def the_disk_holds_what_the_model_holds(self) -> None:
        expected = {name: (file.num_bytes, file.used_ns) for name, file in self.model.files.items()}
        assert self.files_on_disk() == expected

    @invariant()
    def sums_are_right_and_within_the_bound(self) -> None:
        assert self.tier.num_bytes == self.model.num_bytes <= MAX_BYTES
        assert self.tier.num_pages == sum(root == ROOT for root, _ in self.model.files)
        if any(root == OTHER_ROOT for root, _ in self.model.files):
            assert self.tier.other_roots() == [OTHER_ROOT]

    def files_on_disk(self) -> dict[PageName, tuple[int, int]]:
        """Size and time of use of each."""
        found = {}
        for name in (
            (root, number) for root in (ROOT, OTHER_ROOT) for number in range(NUM_NUMBERS)
        ):
            if self.path_of(name).exists():
                state = self.path_of(name).stat()
                found[name] = (state.st_size, state.st_mtime_ns)
        return found

    def is_sound(self, name: PageName) -> bool:
        root, number = name
        whole = b"".join(encode_page(page(number).key, page(number).payload, root=root))
        return self.path_of(name).read_bytes() == whole

    def path_of(self, name: PageName) -> Path:
        root, number = name
        return self.folder / file_name(root, key_of(number).identity)

    def teardown(self) -> None:
        self.tier.close()
        shutil.rmtree(self.folder)


TestDiskTier = DiskTierMachine.TestCase
TestDiskTier.settings = settings(
    derandomize=True,
    deadline=None,
    max_examples=60,
    stateful_step_count=25,
    suppress_health_check=list(HealthCheck),
)
