"""Pages of 4 tokens; a page's tokens are written as a string of digits, its id as an int."""

import pytest

from prefix_cache.invariants import check_tree
from prefix_cache.matching import Match
from prefix_cache.node import Node
from prefix_cache.packed_tokens import pack, unpack
from prefix_cache.tree import MAX_COPIED_PAGES, RadixTree, descendants
from tests.unit.prefix_cache.trees import make_tree

NAMESPACE = b"tenant"


def tokens_of(text: str) -> list[int]:
    return [int(digit) for digit in text]


def packed(text: str) -> bytes:
    return pack(tokens_of(text))


class Writer:
    """Inserts sequences as the cache would, with page ids counting from 0."""

    def __init__(self) -> None:
        self.tree = make_tree(page_size=4)
        self.next_page_id = 0

    def insert(self, text: str, node: Node | None = None) -> Node:
        """Inserts full pages below a locked node; the result is locked."""
        page_ids = list(range(self.next_page_id, self.next_page_id + len(text) // 4))
        self.next_page_id += len(page_ids)
        return self.tree.insert_pages(NAMESPACE, node, tokens=packed(text), page_ids=page_ids).node

    def insert_unlocked(self, text: str) -> Node:
        node = self.insert(text)
        self.tree.unlock(node)
        return node

    def insert_partial(self, text: str, node: Node | None = None) -> list[int]:
        self.next_page_id += 1
        return self.tree.insert_partial(
            NAMESPACE, node, tokens=packed(text), page_id=self.next_page_id - 1
        )

    def match(self, text: str) -> Match:
        return self.tree.match(NAMESPACE, tokens_of(text), len(text))

    def lock(self, text: str) -> tuple[Node | None, Node | None]:
        return self.tree.lock_match(self.match(text), with_tail=True)


@pytest.fixture
def writer() -> Writer:
    return Writer()


def edges(tree: RadixTree) -> list[list[int]]:
    """The page ids of each node, parents first, siblings in order."""
    found: list[list[int]] = []
    pending: list[Node] = list(tree.roots.values())
    while pending:
        node = pending.pop(0)
        found += [node.page_ids] if node.page_ids else []
        pending[:0] = list(node.children)
    return found


def test_an_empty_tree_matches_nothing(writer: Writer) -> None:
    assert writer.match("11112222") == Match()
    assert writer.lock("11112222") == (None, None)


def test_a_match_is_exact_to_the_token_in_the_middle_of_an_edge(writer: Writer) -> None:
    node = writer.insert_unlocked("111122223333")
    match = writer.match("1111223")
    assert match.page_ids == [0]
    assert (match.tail_node, match.tail_index, match.num_tail_tokens) == (node, 1, 2)


def test_a_match_takes_its_tail_from_the_child_that_shares_most(writer: Writer) -> None:
    for branch in ["1110", "1123", "1222"]:
        writer.insert_unlocked("0000" + branch)
    match = writer.match("00001129")
    assert match.num_tail_tokens == 3
    assert match.tail_node is not None
    assert unpack(match.tail_node.tokens) == [1, 1, 2, 3]


def test_a_match_ends_where_the_caller_says(writer: Writer) -> None:
    writer.insert_unlocked("11112222")
    tokens = tokens_of("11112222")
    for num_tokens in range(9):
        match = writer.tree.match(NAMESPACE, tokens, num_tokens)
        assert len(match.page_ids) * 4 + match.num_tail_tokens == num_tokens
    assert writer.tree.match(NAMESPACE, tokens, -1) == Match()


def test_matching_changes_neither_edges_nor_the_order_of_eviction(writer: Writer) -> None:
    old = writer.insert_unlocked("11112222")
    writer.insert_unlocked("3333")
    writer.match("111122")
    assert edges(writer.tree) == [[0, 1], [2]]
    assert writer.tree.order.first() is old


def test_namespaces_do_not_see_each_other(writer: Writer) -> None:
    writer.insert_unlocked("1111")
    assert writer.tree.match(b"other", tokens_of("1111"), 4) == Match()


def test_locking_splits_so_that_only_the_matched_pages_are_locked(writer: Writer) -> None:
    writer.insert_unlocked("1111222233334444")
    node, tail_node = writer.lock("1111222233")
    assert edges(writer.tree) == [[0, 1], [2], [3]]
    assert node is not None
    assert tail_node is not None
    assert (node.page_ids, tail_node.page_ids) == ([0, 1], [2])
    assert writer.tree.num_locked_pages == 3
    check_tree(writer.tree, [node, tail_node])


def test_without_the_tail_only_the_full_pages_are_locked(writer: Writer) -> None:
    writer.insert_unlocked("111122223333")
    node, tail_node = writer.tree.lock_match(writer.match("1111222"), with_tail=False)
    assert tail_node is None
    assert node is not None
    assert node.page_ids == [0]
    assert writer.tree.num_locked_pages == 1


def test_a_split_leaves_the_lower_part_to_who_held_the_edge(writer: Writer) -> None:
    held = writer.insert("111122223333")
    upper, _ = writer.lock("1111")
    assert upper is not None
    assert (upper.page_ids, upper.num_locks) == ([0], 2)
    assert (held.page_ids, held.num_locks, held.parent) == ([1, 2], 1, upper)
    check_tree(writer.tree, [upper, held])


def test_a_hit_is_counted_by_each_node_that_a_match_goes_through(writer: Writer) -> None:
    writer.insert_unlocked("111122223333")
    for _ in range(2):
        writer.lock("1111222233")
    writer.lock("1111")
    hits = {node.page_ids[0]: node.num_hits for node in descendants(writer.tree.roots[NAMESPACE])}
    assert hits == {0: 3, 1: 2, 2: 2}
    assert len(hits) == 3


def test_the_time_of_the_last_use_is_that_of_the_wall_clock() -> None:
    now_ns = [5_000_000_000]
    tree = make_tree(page_size=4, clock_ns=lambda: now_ns[0])
    node = tree.insert_pages(NAMESPACE, None, tokens=packed("1111"), page_ids=[0]).node
    assert node.used_ns == 0
    now_ns[0] = 7_000_000_000
    tree.unlock(node)
    assert node.used_ns == 7_000_000_000


def test_uses_keep_their_order_while_the_clock_stands_still_or_goes_back() -> None:
    now_ns = [9_000_000_000]
    tree = make_tree(page_size=4, clock_ns=lambda: now_ns[0])
    for page_id, text in enumerate(["1111", "2222", "3333"]):
        node = tree.insert_pages(NAMESPACE, None, tokens=packed(text), page_ids=[page_id]).node
        tree.unlock(node)
        now_ns[0] -= page_id * 1_000_000_000
    check_tree(tree, [])
    assert tree.evict(3) == [0, 1, 2]


def test_unlocking_gives_every_count_back(writer: Writer) -> None:
    writer.insert_unlocked("11112222")
    node, tail_node = writer.lock("111122")
    assert node is not None
    assert tail_node is not None
    writer.tree.unlock(tail_node)
    check_tree(writer.tree, [node])
    writer.tree.unlock(node)
    assert writer.tree.num_locked_pages == 0
    check_tree(writer.tree, [])


def test_unlocking_once_too_often_is_an_error(writer: Writer) -> None:
    node = writer.insert_unlocked("1111")
    with pytest.raises(AssertionError, match="more often"):
        writer.tree.unlock(node)


def test_a_leaf_that_only_its_writer_locks_grows_in_place(writer: Writer) -> None:
    first = writer.insert("1111")
    assert writer.insert("2222", first) is first
    assert writer.insert("33334444", first) is first
    assert edges(writer.tree) == [[0, 1, 2, 3]]
    check_tree(writer.tree, [first])


def test_an_edge_that_is_long_to_copy_does_not_grow(writer: Writer) -> None:
    node = writer.insert("1111" * MAX_COPIED_PAGES)
    grown = writer.insert("2222", node)
    assert grown.parent is node
    assert writer.insert("3333", grown) is grown
    check_tree(writer.tree, [grown])


def test_a_long_edge_is_given_up_page_by_page_in_small_copies(writer: Writer) -> None:
    num_pages = 5 * MAX_COPIED_PAGES
    leaf = writer.insert_unlocked("1111" * num_pages)
    for number in range(num_pages - 1, 0, -1):
        assert writer.tree.evict(1) == [number]
        if leaf.parent is not None:
            assert leaf.num_pages <= MAX_COPIED_PAGES + 1
    check_tree(writer.tree, [])


def test_a_leaf_that_two_lock_gets_a_child_instead(writer: Writer) -> None:
    shared = writer.insert("1111")
    other, _ = writer.lock("1111")
    assert other is shared
    child = writer.insert("2222", shared)
    assert child.parent is shared
    assert writer.tree.num_locked_pages == 2
    check_tree(writer.tree, [other, child])


def test_inserting_what_is_there_returns_the_duplicates_and_changes_nothing(writer: Writer) -> None:
    node = writer.insert_unlocked("11112222")
    again = writer.tree.insert_pages(NAMESPACE, None, tokens=packed("11112222"), page_ids=[50, 51])
    assert (again.node, again.page_ids, again.freed) == (node, [0, 1], [50, 51])
    assert edges(writer.tree) == [[0, 1]]
    check_tree(writer.tree, [node])


def test_inserting_a_branch_splits_at_the_page_and_keeps_only_what_is_new(writer: Writer) -> None:
    writer.insert_unlocked("111122223333")
    branch = writer.tree.insert_pages(
        NAMESPACE, None, tokens=packed("111122243333"), page_ids=[50, 51, 52]
    )
    assert (branch.page_ids, branch.freed) == ([0, 51, 52], [50])
    assert edges(writer.tree) == [[0], [1, 2], [51, 52]]
    check_tree(writer.tree, [branch.node])


def test_a_partial_page_is_matched_up_to_its_end(writer: Writer) -> None:
    node = writer.insert("1111")
    assert writer.insert_partial("222", node) == []
    match = writer.match("11112225")
    assert (match.page_ids, match.num_tail_tokens) == ([0], 3)
    check_tree(writer.tree, [node])


def test_a_partial_page_that_another_page_contains_is_not_inserted(writer: Writer) -> None:
    writer.insert_unlocked("2222")
    assert writer.insert_partial("22") == [1]
    assert edges(writer.tree) == [[0]]


def test_a_longer_page_takes_the_place_of_a_partial_one(writer: Writer) -> None:
    assert writer.insert_partial("22") == []
    assert writer.insert_partial("222") == [0]
    insertion = writer.tree.insert_pages(NAMESPACE, None, tokens=packed("2222"), page_ids=[9])
    assert insertion.freed == [1]
    assert edges(writer.tree) == [[9]]
    check_tree(writer.tree, [insertion.node])


def test_a_superseded_page_stays_until_it_is_unlocked(writer: Writer) -> None:
    writer.insert_partial("22")
    _, tail_node = writer.lock("223")
    assert tail_node is not None
    longer = writer.insert("2222")
    assert edges(writer.tree) == [[0], [1]]
    check_tree(writer.tree, [tail_node, longer])
    assert writer.tree.unlock(tail_node) == [0]
    assert edges(writer.tree) == [[1]]
    check_tree(writer.tree, [longer])


def test_a_partial_page_outlives_the_page_that_superseded_it(writer: Writer) -> None:
    writer.insert_partial("22")
    _, tail_node = writer.lock("223")
    assert tail_node is not None
    writer.insert_unlocked("2222")
    assert writer.tree.evict(1) == [1]
    assert writer.tree.unlock(tail_node) == []
    assert writer.match("22").num_tail_tokens == 2


def test_eviction_takes_the_end_of_the_least_recently_used_leaf(writer: Writer) -> None:
    writer.insert_unlocked("1111222233334444")
    writer.insert_unlocked("5555")
    assert writer.tree.evict(2) == [2, 3]
    assert writer.match("11112222").page_ids == [0, 1]
    check_tree(writer.tree, [])


def test_eviction_goes_up_when_the_last_child_is_gone(writer: Writer) -> None:
    writer.insert_unlocked("11112222")
    writer.insert_unlocked("11113333")
    assert writer.tree.evict(2) == [1, 3]
    check_tree(writer.tree, [])
    assert writer.tree.evict(1) == [0]


def test_use_of_a_path_saves_it_from_eviction(writer: Writer) -> None:
    writer.insert_unlocked("1111")
    writer.insert_unlocked("2222")
    node, _ = writer.lock("1111")
    assert node is not None
    writer.tree.unlock(node)
    assert writer.tree.evict(1) == [1]


def test_a_shared_prefix_outlives_its_branches(writer: Writer) -> None:
    for branch in ["2222", "3333", "4444"]:
        writer.insert_unlocked("1111" + branch)
    writer.tree.evict(3)
    assert writer.match("1111").page_ids == [0]


def test_locked_nodes_survive_eviction(writer: Writer) -> None:
    locked = writer.insert("1111")
    writer.insert_unlocked("2222")
    assert writer.tree.evict(1) == [1]
    assert writer.match("1111").page_ids == [0]
    with pytest.raises(AssertionError):
        writer.tree.evict(1)
    check_tree(writer.tree, [locked])


def test_the_root_of_an_empty_namespace_is_forgotten(writer: Writer) -> None:
    writer.insert_unlocked("1111")
    assert list(writer.tree.roots) == [NAMESPACE]
    writer.tree.evict(1)
    assert not writer.tree.roots


def test_a_page_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        make_tree(page_size=0)
