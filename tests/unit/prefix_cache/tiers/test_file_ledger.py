"""The books about files of pages: sums, and the order in which files go."""

import random

from prefix_cache.tiers.file_ledger import FileLedger
from prefix_cache.tiers.page_folder import FoundFile


def file(name: str, used_ns: int, *, num_bytes: int = 10, is_abandoned: bool = False) -> FoundFile:
    return FoundFile(name, num_bytes, used_ns, is_abandoned)


def order_of(ledger: FileLedger) -> list[str]:
    names = []
    while (found := ledger.next_out()) is not None:
        names.append(found.name)
        ledger.remove(found.name)
    return names


def test_sums_follow_what_is_added_replaced_and_removed() -> None:
    ledger = FileLedger([file("a/1", 1), file("b/2", 2)], own_folder="a")
    ledger.add(file("a/3", 3, num_bytes=5))
    ledger.add(file("a/1", 4, num_bytes=7))
    assert (ledger.num_bytes, ledger.num_own) == (22, 2)
    ledger.remove("a/3")
    ledger.remove("a/3")
    assert (ledger.num_bytes, ledger.num_own) == (17, 1)
    assert ledger.remove_own() == ["a/1"]
    assert (ledger.num_bytes, ledger.num_own) == (10, 0)


def test_abandoned_files_go_first_and_then_those_used_longest_ago() -> None:
    files = [file("a/1", 3), file("b/2", 9, is_abandoned=True), file("a/3", 1), file("c/4", 2)]
    files.append(file("b/5", 8, is_abandoned=True))
    assert order_of(FileLedger(files, own_folder="a")) == ["b/5", "b/2", "a/3", "c/4", "a/1"]


def test_which_goes_next_stays_known_until_it_is_removed() -> None:
    ledger = FileLedger([file("a/1", 1)], own_folder="a")
    assert ledger.next_out() == ledger.next_out() == file("a/1", 1)
    assert ledger.num_bytes == 10


def test_a_use_counts_only_if_it_is_later() -> None:
    ledger = FileLedger([file("a/1", 5), file("a/2", 6)], own_folder="a")
    ledger.touch("a/1", used_ns=7)
    ledger.touch("a/1", used_ns=2)
    ledger.touch("a/9", used_ns=9)
    assert order_of(ledger) == ["a/2", "a/1"]


def test_order_is_right_after_any_uses_and_removals() -> None:
    rng = random.Random(1)
    ledger, model = FileLedger(own_folder="a"), dict[str, int]()
    for now in range(3_000):
        name = f"a/{rng.randrange(40)}"
        match rng.randrange(4):
            case 0 | 1:
                ledger.add(file(name, now))
                model[name] = now
            case 2 if name in model:
                ledger.touch(name, used_ns=now)
                model[name] = now
            case _ if model:
                gone = ledger.next_out()
                assert gone is not None
                assert gone.name == min(model, key=lambda known: model[known])
                ledger.remove(gone.name)
                del model[gone.name]
    assert order_of(ledger) == sorted(model, key=lambda known: model[known])
