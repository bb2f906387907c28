"""The tree as data: which edges and prefixes are told, with how much work."""

import itertools
from collections.abc import Iterable, Sequence

import pytest

from prefix_cache import snapshot as module
from prefix_cache.snapshot import Edge, TreeSnapshot, snapshot
from prefix_cache.tree import descendants
from tests.unit.prefix_cache.cache_bench import CacheBench

HEAD = list(range(100, 140))


def taken(bench: CacheBench, *, max_edges: int = 500, num_hottest: int = 10) -> TreeSnapshot:
    roots = bench.cache.tree.roots.values()
    return snapshot(roots, max_edges=max_edges, num_hottest=num_hottest)


def tokens(edge: Edge) -> list[int]:
    """Those of the edge alone, which has few."""
    return edge.first_ids()


def branches(bench: CacheBench, *tails: Iterable[int], head: Sequence[int] = HEAD) -> None:
    for tail in tails:
        bench.serve([*head, *tail])


def test_edges_are_told_with_where_they_begin_and_what_is_above_them() -> None:
    bench = CacheBench()
    branches(bench, [1] * 8, [2] * 8)
    told = taken(bench)
    head, *below = told.edges
    assert (head.parent, head.start, head.end, head.node.num_pages) == (None, 0, 40, 10)
    assert [(edge.parent, edge.start, edge.end) for edge in below] == [(head, 40, 48)] * 2
    assert {tuple(tokens(edge)) for edge in below} == {(1,) * 8, (2,) * 8}
    assert tokens(head) == HEAD[:16]
    assert told.num_left_out == 0


def test_the_largest_edges_are_told_and_each_after_all_above_it() -> None:
    bench = CacheBench(num_pages=400)
    branches(bench, *([k] * (8 + 4 * k) for k in range(1, 9)))
    branches(bench, *([9, k] + [k] * 20 for k in range(50, 54)), head=HEAD[:20])
    told = taken(bench, max_edges=5)
    assert len(told.edges) == 5
    assert all(edge.parent in (None, *told.edges[:place]) for place, edge in enumerate(told.edges))
    largest = [edge for edge in taken(bench).edges if edge.num_tokens >= 36]
    assert {tuple(tokens(edge)) for edge in largest} <= {tuple(tokens(e)) for e in told.edges}
    assert told.num_left_out == len(taken(bench).edges) - 5


def test_an_edge_whose_ancestors_are_too_many_is_left_out() -> None:
    bench = CacheBench(num_pages=200)
    for length in range(4, 40, 4):
        branches(bench, [length] * 4, head=HEAD[:length])
    branches(bench, [7] * 80)
    told = taken(bench, max_edges=3)
    assert all(edge.parent in (None, *told.edges) for edge in told.edges)
    assert max(edge.num_tokens for edge in told.edges) < 80


def test_the_hottest_prefixes_saved_most_and_what_they_share_counts_once() -> None:
    bench = CacheBench(num_pages=400)
    branches(bench, *([k] * 12 for k in range(1, 7)))  # five find the head: 200 tokens saved
    branches(bench, [3] * 16, [3] * 16, [3] * 16)  # ever more of one of the branches
    bench.serve([9] * 30)
    bench.serve([9] * 30)
    told = taken(bench, num_hottest=3)
    hits = [(edge.end, edge.node.num_hits) for edge in told.hottest]
    assert hits[0] == (40, 8)
    assert hits[1:] == [(56, 3), (30, 1)]
    assert told.hottest[1].prefix_ends()[0] == [*HEAD, *[3] * 16]


def test_what_nobody_found_is_no_hot_prefix() -> None:
    bench = CacheBench()
    bench.serve(HEAD)
    assert taken(bench).hottest == []


def test_of_a_long_prefix_the_first_and_the_last_tokens_are_told() -> None:
    bench = CacheBench(num_pages=200)
    sequence = list(range(300))
    for length in (250, 252, 300, 300):
        bench.serve(sequence[:length])
    (hottest,) = (edge for edge in taken(bench).hottest if edge.end > 290)
    first, last = hottest.prefix_ends()
    assert first == sequence[:64]
    assert last == sequence[hottest.end - 32 : hottest.end]


@pytest.mark.parametrize("length", [60, 64, 65, 90, 96, 100])
def test_no_token_of_a_prefix_is_told_twice(length: int) -> None:
    bench = CacheBench(num_pages=200)
    sequence = list(range(length))
    for end in (20, 40, length):
        bench.serve([*sequence[:end], 999])
    edge = max(taken(bench).edges, key=lambda edge: edge.end)
    assert edge.end >= length
    first, last = edge.prefix_ends()
    whole = [*sequence, 999][: edge.end]
    assert first == whole[:64]
    assert last == whole[max(64, edge.end - 32) :]


def test_however_large_a_tree_is_the_walk_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WALKED", 60)
    bench = CacheBench(num_pages=3000)
    branches(bench, *([k, k, k, k] for k in range(300)))
    branches(bench, *([k] * 8 for k in range(300)), head=[1, 2, 3, 4])
    told = taken(bench)
    assert 30 <= len(told.edges) <= 60
    num_all = sum(1 for root in bench.cache.tree.roots.values() for _ in descendants(root))
    assert 600 < told.num_left_out + len(told.edges) <= num_all
    heads = [edge for edge in told.edges if edge.parent is None]
    assert [tokens(head) for head in heads] == [[1, 2, 3, 4], HEAD[:16]]
    # What was used last has some of its own told first, and the other as many as there is room
    # for then; both from one end to the other.
    firsts = [[tokens(edge)[0] for edge in told.edges if edge.parent is head] for head in heads]
    assert [len(ids) for ids in firsts] == [28, 15]
    assert all(max(ids) - min(ids) > 250 for ids in firsts)


def test_of_many_namespaces_some_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROOTS", 20)
    bench = CacheBench(num_pages=1000)
    for salt in range(100):
        bench.serve(HEAD[:8], namespace=bytes([salt]))
    assert len(taken(bench).edges) == 20


def test_a_snapshot_changes_nothing() -> None:
    bench = CacheBench(num_pages=200)
    branches(bench, *([k] * 12 for k in range(1, 7)))
    tree = bench.cache.tree
    before = [(node.last_used, node.num_hits) for node in tree.order.all.normal]
    for _ in range(3):
        taken(bench)
    assert [(node.last_used, node.num_hits) for node in tree.order.all.normal] == before
    bench.cache.check_invariants()


def test_ids_are_distinct() -> None:
    bench = CacheBench(num_pages=200)
    branches(bench, *([k] * 12 for k in range(1, 7)))
    ids = [edge.id for edge in taken(bench).edges]
    assert all(a != b for a, b in itertools.combinations(ids, 2))
