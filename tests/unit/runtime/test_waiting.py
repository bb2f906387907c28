"""The queue's order and the rule by which one sequence waits for another's prefix."""

from prefix_cache import PrefixCache
from runtime.request import Sequence, SequenceState
from runtime.waiting import MAX_FOLLOW_NS, PrefixFollowing, WaitingQueue
from tests.engine_harness import PAGE_SIZE, make_sequence

LONG = list(range(80))


def running(prompt: list[int], *, key: int = 0, num_computed: int = 0) -> Sequence:
    sequence = make_sequence(prompt, key=key)
    sequence.state = SequenceState.RUNNING
    sequence.input_len = len(prompt)
    sequence.num_computed_tokens = num_computed
    return sequence


def make_following() -> tuple[PrefixFollowing, PrefixCache]:
    cache = PrefixCache(num_pages=32, page_size=PAGE_SIZE)
    return PrefixFollowing(cache, page_size=PAGE_SIZE), cache


def put_into_tree(cache: PrefixCache, token_ids: list[int]) -> None:
    lease = cache.acquire(b"", token_ids, max_tokens=len(token_ids) - 1)
    cache.extend(lease, -(-len(token_ids) // PAGE_SIZE) - len(lease.page_ids))
    cache.release_tail(lease)
    cache.release(lease, token_ids)


def must_wait(sequence: Sequence, *leaders: Sequence, now_ns: int = 0) -> bool:
    following, _ = make_following()
    return following.must_wait(sequence, leaders, now_ns=now_ns)


def test_the_queue_is_in_order_of_arrival_whenever_a_sequence_joins_it() -> None:
    queue = WaitingQueue()
    for key in (3, 1, 2):
        queue.add(make_sequence([1], key=key))
    assert [sequence.key for sequence in queue] == [1, 2, 3]


def test_preempted_sequences_come_before_all_others() -> None:
    queue = WaitingQueue()
    preempted = [make_sequence([1], key=key) for key in (9, 8)]
    for sequence in preempted:
        sequence.phases.preempted(0)
    for sequence in (make_sequence([1], key=1), *preempted):
        queue.add(sequence)
    assert [sequence.key for sequence in queue] == [8, 9, 1]


def test_a_loop_over_the_queue_may_remove_from_it() -> None:
    queue = WaitingQueue()
    for key in range(3):
        queue.add(make_sequence([1], key=key))
    for sequence in queue:
        queue.remove(sequence)
    assert len(queue) == 0


def test_a_follower_waits_for_the_pages_that_another_is_computing() -> None:
    assert must_wait(make_sequence(LONG, key=1), running(LONG))


def test_the_wait_ends_with_the_last_common_page() -> None:
    following, _ = make_following()
    follower, leader = make_sequence([*LONG[:40], 7, 7], key=1), running(LONG)
    leader.num_computed_tokens = 31
    assert following.must_wait(follower, [leader], now_ns=0)
    leader.num_computed_tokens = 32
    assert not following.must_wait(follower, [leader], now_ns=0)


def test_nobody_waits_for_less_than_a_page() -> None:
    assert not must_wait(make_sequence(LONG[:16], key=1), running(LONG))
    assert must_wait(make_sequence(LONG[:17], key=1), running(LONG))


def test_nobody_waits_for_a_different_prompt() -> None:
    assert not must_wait(make_sequence([9, *LONG], key=1), running(LONG))


def test_nobody_waits_for_what_is_in_the_tree() -> None:
    following, cache = make_following()
    put_into_tree(cache, LONG)
    assert not following.must_wait(make_sequence(LONG, key=1), [running(LONG)], now_ns=0)


def test_nobody_waits_across_namespaces() -> None:
    assert not must_wait(make_sequence(LONG, key=1, namespace=b"other"), running(LONG))


def test_nobody_waits_where_the_cache_is_not_used() -> None:
    selfish = make_sequence(LONG, key=2, use_cache=False)
    selfish.state, selfish.input_len = SequenceState.RUNNING, len(LONG)
    assert not must_wait(make_sequence(LONG, key=1, use_cache=False), running(LONG))
    assert not must_wait(make_sequence(LONG, key=1), selfish)


def test_a_follower_goes_on_when_its_leader_is_gone() -> None:
    following, _ = make_following()
    follower, leader = make_sequence(LONG, key=1), running(LONG)
    assert following.must_wait(follower, [leader], now_ns=0)
    leader.state = SequenceState.FINISHED
    assert not following.must_wait(follower, [], now_ns=0)


def test_a_follower_finds_the_next_leader_when_its_own_is_gone() -> None:
    following, _ = make_following()
    follower, first, second = make_sequence(LONG, key=9), running(LONG), running(LONG, key=1)
    following.must_wait(follower, [first], now_ns=0)
    first.state = SequenceState.WAITING
    assert following.must_wait(follower, [second], now_ns=0)
    assert follower.leader is second


def test_the_leader_with_the_longest_common_prefix_is_followed() -> None:
    following, _ = make_following()
    short, long = running([*LONG[:16], 1, 1]), running(LONG, key=1)
    follower = make_sequence(LONG, key=9)
    assert following.must_wait(follower, [short, long], now_ns=0)
    assert (follower.leader, follower.leader_len) == (long, 64)


def test_patience_ends_even_if_the_leader_does_not_move() -> None:
    following, _ = make_following()
    follower, leader = make_sequence(LONG, key=1), running(LONG)
    assert following.must_wait(follower, [leader], now_ns=100)
    assert following.must_wait(follower, [leader], now_ns=99 + MAX_FOLLOW_NS)
    assert not following.must_wait(follower, [leader], now_ns=100 + MAX_FOLLOW_NS)


def test_a_sequence_that_decodes_leads_nobody() -> None:
    assert not must_wait(make_sequence(LONG, key=1), running(LONG, num_computed=80))
