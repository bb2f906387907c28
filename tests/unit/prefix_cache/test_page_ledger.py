"""What an observer is told of evicted runs, and that a look-up finds what was there once."""

from prefix_cache.packed_tokens import pack, unpack
from prefix_cache.page_keys import page_key, root_key
from tests.unit.prefix_cache.cached_prompts import Evictions, make_cache, need, remember


def key_of(tokens: list[int], owner: str = "ada") -> int:
    """The name of a prefix of whole pages."""
    key = root_key(owner.encode())
    for start in range(0, len(tokens), 4):
        key = page_key(key, pack(tokens[start : start + 4]))
    return key


def test_a_run_is_told_once_with_the_name_of_what_came_before() -> None:
    evictions = Evictions()
    cache = make_cache(4, observer=evictions)
    tokens = list(range(16))
    remember(cache, tokens)
    need(cache, 3)
    assert evictions.runs == [(b"ada", key_of(tokens[:4]), pack(tokens[4:8]), 3)]
    need(cache, 4)
    assert evictions.runs[1:] == [(b"ada", key_of([]), pack(tokens[:4]), 1)]


def test_names_do_not_depend_on_how_edges_were_cut_or_grew() -> None:
    evictions = Evictions()
    cache = make_cache(8, observer=evictions)
    first, second = [1] * 4 + [2] * 4 + [3] * 4, [1] * 4 + [2] * 4 + [4] * 4 + [5] * 2
    remember(cache, first)
    remember(cache, second)
    cache.flush()
    told = {(key, first_page) for _, key, first_page, _ in evictions.runs}
    assert told == {
        (key_of([]), pack([1] * 4)),
        (key_of([1] * 4 + [2] * 4), pack([3] * 4)),
        (key_of([1] * 4 + [2] * 4), pack([4] * 4)),
        (key_of([1] * 4 + [2] * 4 + [4] * 4), pack([5] * 2)),
    }
    assert sum(num_pages for *_, num_pages in evictions.runs) == 5


def test_the_cause_says_for_whom_pages_were_given_up() -> None:
    evictions = Evictions()
    cache = make_cache(4, observer=evictions)
    remember(cache, [1] * 16)
    need(cache, 1, owner="ada")
    need(cache, 2, owner="bob")
    cache.set_quota("ada", 1)
    cache.flush("ada")
    assert evictions.causes == [
        ("own_request", "ada"),
        ("other_tenant", "bob"),
        ("quota", "ada"),
        ("flush", "ada"),
    ]
    assert [unpack(page) for _, _, page, _ in evictions.runs] == [[1] * 4] * 4


def test_a_partial_page_that_a_longer_one_replaces_is_no_eviction() -> None:
    evictions = Evictions()
    cache = make_cache(8, observer=evictions)
    remember(cache, [1] * 6)
    remember(cache, [1] * 9)
    assert evictions.runs == []
