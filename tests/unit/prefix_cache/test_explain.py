"""Why no more of a prompt is cached than is, for each reason there is. Pages of 4 tokens."""

from collections.abc import Callable

import pytest

from prefix_cache import explain
from prefix_cache.explain import Explanation
from tests.unit.prefix_cache.cache_bench import OWNER, SALT, CacheBench

CHAT = list(range(100, 140))


def test_a_prompt_like_no_other_was_never_seen() -> None:
    bench = CacheBench()
    bench.serve(CHAT)
    assert bench.explain([1, *CHAT]) == Explanation(0, "never_seen")


def test_a_prompt_of_which_all_is_cached_needs_no_reason() -> None:
    bench = CacheBench()
    bench.serve(CHAT)
    assert bench.explain(CHAT) == Explanation(len(CHAT) - 1)
    assert bench.explain(CHAT[:7]) == Explanation(6)
    assert bench.explain([1]) == bench.explain([]) == Explanation(0)


@pytest.mark.parametrize("length", [36, 38, 40])
def test_a_prompt_that_goes_on_where_the_cached_sequence_ends_grows(length: int) -> None:
    bench = CacheBench()
    bench.serve(CHAT[:length])
    assert bench.explain([*CHAT[:length], 1, 2, 3]) == Explanation(length, "grows")


@pytest.mark.parametrize("matched", [3, 4, 18, 20])
def test_a_prompt_that_goes_on_in_another_way_is_told_how_the_cached_one_does(matched: int) -> None:
    bench = CacheBench()
    bench.serve(CHAT)
    expected = Explanation(matched, "differs", CHAT[matched : matched + 16])
    assert bench.explain([*CHAT[:matched], 1, 2, 3, 4, 5, 6]) == expected


def test_of_several_sequences_the_one_that_shares_most_is_told() -> None:
    bench = CacheBench()
    for branch in ([1, 2, 3, 4, 5], [1, 2, 8, 8, 8], [7, 7, 7, 7, 7]):
        bench.serve([*CHAT[:8], *branch])
    told = bench.explain([*CHAT[:8], 1, 2, 8, 9, 9, 9])
    assert told == Explanation(11, "differs", [8, 8])


def test_the_cached_sequence_is_followed_over_edges_to_where_it_was_used_last() -> None:
    bench = CacheBench()
    bench.serve([*CHAT[:8], *[1] * 20])
    bench.serve([*CHAT[:8], *[2] * 20])
    bench.serve([*CHAT[:8], *[1] * 21])
    told = bench.explain([*CHAT[:6], 9, 9, 9])
    assert told == Explanation(6, "differs", [*CHAT[6:8], *[1] * 14])


def evicted(bench: CacheBench, num_pages: int, *, owner: str = OWNER) -> None:
    """A request that takes so many pages from what was used least recently."""
    num_free = bench.cache.counts().free
    token_ids = [5000 + index for index in range(4 * (num_free + num_pages))]
    bench.serve(token_ids, namespace=owner.encode(), owner=owner)


def test_an_evicted_page_is_told_with_when_and_what_for() -> None:
    bench = CacheBench(num_pages=20)
    bench.serve(CHAT[:20])
    evicted(bench, 2)
    told = bench.explain(CHAT[:20])
    assert (told.matched_tokens, told.reason, told.cached_ids) == (12, "evicted", [])
    assert told.evicted is not None
    assert (told.evicted.cause, told.evicted.at_ns) == ("own_request", 10**9)


def test_what_another_owner_took_and_what_a_flush_took_is_told_as_that() -> None:
    bench = CacheBench(num_pages=20)
    bench.serve(CHAT[:20])
    evicted(bench, 1, owner="other")
    told = bench.explain(CHAT[:20])
    assert told.evicted is not None
    assert (told.matched_tokens, told.evicted.cause) == (16, "other_tenant")
    bench.cache.flush()
    told = bench.explain(CHAT[:20])
    assert (told.matched_tokens, told.reason) == (0, "evicted")
    assert told.evicted is not None
    assert told.evicted.cause == "flush"


def test_a_prompt_that_only_begins_like_what_was_evicted_was_never_seen() -> None:
    bench = CacheBench()
    bench.serve(CHAT)
    bench.cache.flush()
    assert bench.explain([*CHAT[:3], 1, 2, 3]).reason == "never_seen"
    assert bench.explain([*CHAT[:4], 1, 2, 3]).reason == "evicted"
    assert bench.explain(CHAT[:3]).reason == "evicted"


def test_what_was_evicted_with_less_than_is_cached_is_no_reason() -> None:
    bench = CacheBench()
    bench.serve(CHAT[:5])
    bench.cache.flush()
    bench.serve([*CHAT[:6], 1])
    assert bench.explain([*CHAT[:6], 2, 3]).reason == "differs"
    assert bench.explain([*CHAT[:5], 2, 3]).reason == "differs"


def test_what_was_evicted_and_came_back_is_not_told_as_evicted() -> None:
    bench = CacheBench()
    bench.serve(CHAT)
    bench.cache.flush()
    bench.serve(CHAT)
    assert bench.explain(CHAT).reason is None
    assert bench.explain([*CHAT, 1, 2]).reason == "grows"
    assert bench.explain([*CHAT[:8], 1, 2]).reason == "differs"


def test_a_prompt_that_the_same_owner_has_under_another_salt_says_so() -> None:
    bench = CacheBench()
    bench.serve(CHAT, namespace=b"salted")
    assert bench.explain(CHAT) == Explanation(0, "other_salt")
    bench.serve(CHAT[:10])
    assert bench.explain(CHAT) == Explanation(10, "other_salt")
    bench.serve(CHAT[:6], namespace=b"third")
    assert bench.explain(CHAT[:10], namespace=b"third").reason == "other_salt"
    assert bench.explain(CHAT, namespace=b"salted").reason is None


def test_a_namespace_that_has_only_a_few_tokens_more_is_no_reason() -> None:
    bench = CacheBench()
    bench.serve(CHAT[:10])
    bench.serve([*CHAT[:13], 1, 2], namespace=b"salted")
    assert bench.explain(CHAT).reason == "grows"
    bench.serve(CHAT[:14], namespace=b"salted")
    assert bench.explain(CHAT).reason == "other_salt"
    # Where that is all that can match, a few are enough.
    assert bench.explain([*CHAT[:12], 7]).reason == "other_salt"


def test_another_owners_prompt_is_told_only_to_who_sees_all() -> None:
    bench = CacheBench()
    bench.serve(CHAT, namespace=b"theirs", owner="other")
    assert bench.explain(CHAT) == Explanation(0, "never_seen")
    assert bench.explain(CHAT, sees_all=True) == Explanation(0, "other_tenant")
    bench.serve(CHAT[:10])
    assert bench.explain(CHAT).reason == "grows"
    assert bench.explain(CHAT, sees_all=True).reason == "other_tenant"


def test_nothing_is_changed_by_a_question() -> None:
    bench = CacheBench(num_pages=40)
    for token_ids in (CHAT, CHAT[:22] + CHAT[:30], CHAT[::-1]):
        bench.serve(token_ids)
    evicted(bench, 3)
    tree = bench.cache.tree

    def state() -> object:
        return (
            [(node.last_used, node.num_hits, node.tokens) for node in tree.order.all.normal],
            tree.order.first(),
            tree._clock,
            bench.cache.counts(),
            list(bench.log._runs),
        )

    before = state()
    for token_ids in (CHAT, CHAT[:22] + CHAT[:30], CHAT[::-1], [1, 2, 3]):
        bench.explain(token_ids, sees_all=True)
    assert state() == before
    bench.cache.check_invariants()


def count_matches(bench: CacheBench, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many tokens the tree was asked to match, at most."""
    tree, asked = bench.cache.tree, [0]
    match = tree.match

    def counted(namespace: bytes, token_ids: list[int], num_tokens: int) -> object:
        asked[0] += num_tokens
        return match(namespace, token_ids, num_tokens)

    monkeypatch.setattr(tree, "match", counted)
    return lambda: asked[0]


def test_however_many_namespaces_an_owner_has_a_question_costs_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = CacheBench(num_pages=4000)
    for salt in range(900):
        bench.serve(CHAT[:12], namespace=salt.to_bytes(2))
    num_asked = count_matches(bench, monkeypatch)
    assert bench.explain(CHAT[:30], namespace=(7).to_bytes(2)).reason == "grows"
    # All of them begin like the prompt; of each that is looked at a page of 4 is compared first.
    most = 29 * (1 + explain.MAX_MATCHED_NAMESPACES) + 4 * explain.MAX_NAMESPACES
    assert num_asked() == most < 900 * 4


def test_a_question_of_one_owner_looks_at_nothing_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = CacheBench(num_pages=4000)
    bench.serve(CHAT[:12])
    for salt in range(900):
        bench.serve(CHAT, namespace=salt.to_bytes(2), owner=f"other {salt}")
    num_asked = count_matches(bench, monkeypatch)
    bench.explain(CHAT[:30])
    assert num_asked() <= 29 * 2 + 4


def test_at_admission_the_reason_is_found_without_a_second_match(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = CacheBench()
    bench.serve(CHAT)
    num_asked = count_matches(bench, monkeypatch)
    assert bench.reason_at_admission(CHAT[:20] + CHAT[:20]) == "differs"
    assert bench.reason_at_admission([*CHAT, 1, 2]) == "grows"
    assert bench.reason_at_admission(CHAT) is None
    assert bench.reason_at_admission([9, 9, 9]) == "never_seen"
    assert num_asked() == 39 + 41 + 39 + 2
    assert bench.cache.peek(SALT, CHAT) == len(CHAT)
