"""What lower tiers are told of pages that enter and leave the tree."""

from prefix_cache import PrefixCache, page_identities, tenant_root
from prefix_cache.packed_tokens import pack, unpack
from prefix_cache.page_notes import PageNotes
from tests.unit.prefix_cache.cached_prompts import make_cache, need, remember

ROOT = b"kv root"


def identities(tokens: list[int], owner: str = "ada") -> list[bytes]:
    return list(page_identities(tenant_root(ROOT, owner.encode()), tokens, page_size=4))


def make(num_pages: int = 16) -> PrefixCache:
    return make_cache(num_pages, identity_root=ROOT)


def test_full_pages_that_enter_the_tree_are_told_with_their_identities() -> None:
    cache = make()
    tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    remember(cache, tokens)
    notes = cache.take_stored()
    assert [note.identity for note in notes] == identities(tokens)
    assert [unpack(note.tokens) for note in notes] == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert {note.namespace for note in notes} == {b"ada"}
    assert all(cache.is_current(note.page_id, note.generation) for note in notes)
    assert cache.take_stored() == []


def test_pages_published_one_by_one_are_named_like_those_that_came_together() -> None:
    cache = make()
    tokens = list(range(16))
    lease = cache.acquire(b"ada", tokens, max_tokens=15)
    cache.extend(lease, 4)
    for end in (4, 5, 8, 16):
        cache.publish(lease, tokens[:end])
    assert [note.identity for note in cache.take_stored()] == identities(tokens)


def test_a_branch_is_named_behind_what_it_shares() -> None:
    cache = make()
    remember(cache, [1] * 4 + [2] * 4)
    cache.take_stored()
    branch = [1] * 4 + [3] * 4
    remember(cache, branch)
    assert [note.identity for note in cache.take_stored()] == identities(branch)[1:]


def test_pages_that_are_there_already_are_not_told_again() -> None:
    cache = make()
    remember(cache, [1] * 8)
    cache.take_stored()
    remember(cache, [1] * 8)
    assert cache.take_stored() == []


def test_an_evicted_page_is_told_and_its_generation_is_over() -> None:
    cache = make(4)
    remember(cache, [1] * 16)
    notes = cache.take_stored()
    need(cache, 2)
    assert cache.take_removed() == identities([1] * 16)[2:]
    assert [cache.is_current(note.page_id, note.generation) for note in notes] == [
        True,
        True,
        False,
        False,
    ]
    assert cache.take_removed() == []


def test_a_page_that_comes_back_is_told_as_stored_and_no_more_as_removed() -> None:
    cache = make(4)
    remember(cache, [1] * 8)
    need(cache, 4)
    remember(cache, [1] * 8)
    current = [n for n in cache.take_stored() if cache.is_current(n.page_id, n.generation)]
    assert [note.identity for note in current] == identities([1] * 8)
    assert cache.take_removed() == []


def test_the_same_page_number_with_other_tokens_has_another_generation() -> None:
    cache = make(2)
    remember(cache, [1] * 8)
    old = cache.take_stored()
    remember(cache, [2] * 8)
    new = cache.take_stored()
    assert {note.page_id for note in old} == {note.page_id for note in new}
    assert not any(cache.is_current(note.page_id, note.generation) for note in old)
    assert all(cache.is_current(note.page_id, note.generation) for note in new)


def test_partial_pages_are_nobodys_business() -> None:
    cache = make(4)
    remember(cache, [1] * 6)
    assert len(cache.take_stored()) == 1
    cache.flush()
    assert cache.take_removed() == identities([1] * 4)


def test_without_an_identity_root_nothing_is_noted() -> None:
    cache = make_cache(4)
    remember(cache, [1] * 16)
    need(cache, 4)
    assert (cache.take_stored(), cache.take_removed()) == ([], [])
    assert not cache.is_current(0, 0)
    assert cache.identities_of(b"ada", [1] * 16, num_pages=4) == []


def test_identities_of_a_prompt_are_those_of_its_pages() -> None:
    cache = make()
    tokens = list(range(20))
    assert cache.identities_of(b"ada", tokens, num_pages=3) == identities(tokens)[:3]
    assert cache.identities_of(b"ada", tokens[:6], num_pages=3) == identities(tokens)[:1]
    assert cache.identities_of(b"bob", tokens, num_pages=1) == identities(tokens, "bob")[:1]


def test_notes_that_nobody_takes_are_bounded_and_the_oldest_go_first() -> None:
    notes = PageNotes(num_pages=8, identity_root=ROOT, max_notes=3)
    pages = [pack([number] * 4) for number in range(8)]
    notes.enter(b"", None, pages=pages, page_ids=list(range(8)))
    assert notes.num_dropped == 5
    notes.leave(list(range(8)))
    assert [note.page_id for note in notes.take_stored()] == [5, 6, 7]
    assert len(notes.take_removed()) == 3
    assert notes.num_dropped == 10
