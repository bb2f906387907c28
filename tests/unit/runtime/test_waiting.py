"""The queue's order and the rule by which one sequence waits for another's prefix."""

from collections.abc import Sequence as Ordered

from prefix_cache import PrefixCache
from runtime.fairness import FairTurns, TenantCounters
from runtime.phases import PreemptionReason
from runtime.request import Sequence, SequenceState
from runtime.waiting import (
    MAX_DEBT_NS,
    MAX_FOLLOW_NS,
    PrefixFollowing,
    TenantQueue,
    WaitingQueue,
)
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


def make_queue(*, max_overtaking_ns: int = 100) -> TenantQueue:
    cache = PrefixCache(num_pages=8, page_size=PAGE_SIZE)
    return TenantQueue(cache, max_overtaking_ns=max_overtaking_ns)


def keys(queue: TenantQueue, now_ns: int = 0) -> list[int]:
    return [sequence.key for sequence, _ in queue.in_order(now_ns)]


def test_of_equal_prompts_the_first_to_arrive_is_first() -> None:
    queue = make_queue()
    for key in (3, 1, 2):
        queue.add(make_sequence([1], key=key), 0)
    assert keys(queue) == [1, 2, 3]


def test_who_has_less_to_compute_is_first() -> None:
    queue = make_queue()
    for key, num_tokens in enumerate((50, 3, 10)):
        queue.add(make_sequence([1] * num_tokens, key=key), 0)
    assert keys(queue) == [1, 2, 0]


def test_a_little_less_to_compute_is_no_reason_to_overtake() -> None:
    queue = make_queue()
    for key, num_tokens in enumerate((31, 17, 32)):
        queue.add(make_sequence([1] * num_tokens, key=key), 0)
    assert keys(queue) == [0, 1, 2]


def test_what_is_cached_need_not_be_computed() -> None:
    cache = PrefixCache(num_pages=32, page_size=PAGE_SIZE)
    put_into_tree(cache, LONG)
    queue = TenantQueue(cache, max_overtaking_ns=100)
    queue.add(make_sequence([7] * 20, key=0), 0)
    queue.add(make_sequence([*LONG, 7], key=1), 0)
    assert keys(queue) == [0, 1]
    queue.refresh()
    assert keys(queue) == [1, 0]


def test_what_is_cached_is_of_no_use_to_who_does_not_use_the_cache() -> None:
    cache = PrefixCache(num_pages=32, page_size=PAGE_SIZE)
    put_into_tree(cache, LONG)
    queue = TenantQueue(cache, max_overtaking_ns=100)
    queue.add(make_sequence([7] * 20, key=0), 0)
    queue.add(make_sequence([*LONG, 7], key=1, use_cache=False), 0)
    queue.refresh()
    assert keys(queue) == [0, 1]


class CountingCache(PrefixCache):
    """Notes who was looked up."""

    def __init__(self) -> None:
        super().__init__(num_pages=8, page_size=PAGE_SIZE)
        self.peeked: list[int] = []

    def peek(self, namespace: bytes, token_ids: Ordered[int]) -> int:
        self.peeked.append(token_ids[0])
        return super().peek(namespace, token_ids)


def test_a_step_looks_up_a_few_of_many_and_all_get_their_turn() -> None:
    cache = CountingCache()
    queue = TenantQueue(cache, max_overtaking_ns=100)
    for key in range(1_000):
        queue.add(make_sequence([key] * 3, key=key), 0)
    queue.refresh()
    num_at_once = len(cache.peeked)
    assert 4 <= num_at_once <= 64
    for _ in range(1_000 // num_at_once):
        queue.refresh()
    assert set(cache.peeked) == set(range(1_000))


def test_who_left_the_queue_is_not_looked_up() -> None:
    cache = CountingCache()
    queue = TenantQueue(cache, max_overtaking_ns=100)
    sequences = [make_sequence([key] * 3, key=key) for key in range(3)]
    for sequence in sequences:
        queue.add(sequence, 0)
    queue.remove(sequences[1])
    queue.refresh()
    assert sorted(cache.peeked) == [0, 2]


def test_a_queue_of_one_needs_no_order() -> None:
    cache = CountingCache()
    queue = TenantQueue(cache, max_overtaking_ns=100)
    queue.add(make_sequence([1], key=0), 0)
    queue.refresh()
    assert cache.peeked == []


def aged_queue() -> tuple[TenantQueue, list[Sequence]]:
    """Sequences of 90, 40 and 2 tokens that joined at 0, 50 and 60; the age limit is 100."""
    queue = make_queue(max_overtaking_ns=100)
    sequences = [make_sequence([1] * n, key=key) for key, n in enumerate((90, 40, 2))]
    for sequence, joined_ns in zip(sequences, (0, 50, 60), strict=True):
        queue.add(sequence, joined_ns)
    return queue, sequences


def test_after_a_time_nobody_is_overtaken_any_more() -> None:
    queue, _ = aged_queue()
    assert keys(queue, now_ns=99) == [2, 1, 0]
    assert keys(queue, now_ns=100) == [0, 2, 1]
    assert keys(queue, now_ns=150) == [0, 1, 2]
    assert [rank > 0 for _, rank in queue.in_order(150)] == [False, False, True]


def test_where_all_are_old_every_second_token_is_for_those_with_few() -> None:
    queue, sequences = aged_queue()
    queue.add(make_sequence([1] * 300, key=3), 60)
    queue.add(make_sequence([1] * 9, key=4), 61)
    assert next(queue.in_order(999)) == (sequences[0], 0)
    queue.admit(sequences[0], 90, 999)
    assert keys(queue, now_ns=999) == [2, 4, 1, 3]
    queue.admit(sequences[2], 89, 999)
    assert keys(queue, now_ns=999)[0] == 4
    queue.admit(sequences[1], 40, 999)
    assert keys(queue, now_ns=999) == [3, 4]


def test_one_walk_takes_no_second_old_one_before_the_first_is_made_up_for() -> None:
    queue, sequences = aged_queue()
    walk = queue.in_order(999)
    queue.admit(next(walk)[0], 90, 999)
    assert [sequence for sequence, _ in walk] == [sequences[2], sequences[1]]


def test_an_old_one_is_not_kept_waiting_by_many_that_compute_next_to_nothing() -> None:
    queue, sequences = aged_queue()
    assert next(queue.in_order(999)) == (sequences[0], 0)
    queue.admit(sequences[0], 90, 999)
    assert keys(queue, now_ns=998 + MAX_DEBT_NS) == [2, 1]
    assert keys(queue, now_ns=999 + MAX_DEBT_NS) == [1, 2]


def test_while_an_old_one_is_computed_the_next_does_not_come_nearer() -> None:
    queue, sequences = aged_queue()
    assert next(queue.in_order(999)) == (sequences[0], 0)
    queue.admit(sequences[0], 90, 999)
    sequences[0].state, sequences[0].input_len = SequenceState.RUNNING, 90
    computed_ns = 500 + MAX_DEBT_NS
    assert keys(queue, now_ns=computed_ns) == [2, 1]
    sequences[0].num_computed_tokens = 90
    assert keys(queue, now_ns=computed_ns + MAX_DEBT_NS - 1) == [2, 1]
    assert keys(queue, now_ns=computed_ns + MAX_DEBT_NS) == [1, 2]


def test_preempted_sequences_come_before_all_others() -> None:
    queue = make_queue()
    preempted = [make_sequence([1] * 50, key=key) for key in (9, 8)]
    for sequence in preempted:
        sequence.phases.preempted(0, PreemptionReason.MEMORY, num_computed=0)
    for sequence in (make_sequence([1], key=1), *preempted):
        queue.add(sequence, 0)
    assert keys(queue) == keys(queue, now_ns=1_000) == [8, 9, 1]


def test_a_loop_over_the_queue_may_remove_from_it() -> None:
    queue = make_queue()
    for key in range(4):
        queue.add(make_sequence([1], key=key), 50 * (key // 2))
    for sequence, _ in queue.in_order(110):
        queue.remove(sequence)
    assert len(queue) == 0


class Tenants:
    """The queues of several, with counters of what they were served."""

    def __init__(self, cache: PrefixCache | None = None) -> None:
        self.counters = TenantCounters(max_lead=10_000.0)
        self.queue = WaitingQueue(
            cache or PrefixCache(num_pages=8, page_size=PAGE_SIZE),
            counters=self.counters,
            turns=FairTurns(self.counters, quantum=100.0),
            max_overtaking_ns=100,
        )

    def add(self, num_tokens: int, *, key: int, tenant: str, now_ns: int = 0) -> Sequence:
        sequence = make_sequence([1] * num_tokens, key=key, tenant=tenant)
        self.queue.add(sequence, now_ns)
        return sequence

    def admit(self, sequence: Sequence, num_tokens: int = 1, now_ns: int = 0) -> None:
        self.queue.admit(sequence, num_tokens, now_ns)
        sequence.state, sequence.input_len = SequenceState.RUNNING, len(sequence.token_ids)

    def keys(self, *prefilling: Sequence, now_ns: int = 0) -> list[int]:
        return [one.key for one in self.queue.in_order(list(prefilling), now_ns)]


def test_between_tenants_the_counters_decide_and_within_one_the_tokens_to_compute() -> None:
    tenants = Tenants()
    for key, (tenant, num_tokens) in enumerate((("a", 50), ("a", 3), ("b", 90), ("b", 20))):
        tenants.add(num_tokens, key=key, tenant=tenant)
    assert tenants.keys() == [1, 0, 3, 2]
    tenants.counters.charge("a", 100.0)
    assert tenants.keys() == [3, 2, 1, 0]


def test_neither_age_nor_preemption_overtakes_another_tenant() -> None:
    tenants = Tenants()
    preempted = make_sequence([1] * 50, key=0, tenant="a")
    preempted.phases.preempted(0, PreemptionReason.MEMORY, num_computed=0)
    tenants.queue.add(preempted, 0)
    tenants.add(9, key=1, tenant="a")
    tenants.add(3, key=2, tenant="a", now_ns=950)
    tenants.add(40, key=3, tenant="b", now_ns=990)
    tenants.counters.charge("a", 100.0)
    assert tenants.keys(now_ns=1_000) == [3, 0, 1, 2]


def test_what_the_aged_owe_they_owe_to_their_own_tenant() -> None:
    tenants = Tenants()
    for key, (tenant, num_tokens) in enumerate((("a", 90), ("a", 80), ("b", 70), ("a", 2))):
        tenants.add(num_tokens, key=key, tenant=tenant, now_ns=10 * key)
    walk = tenants.queue.in_order([], 999)
    tenants.admit(next(walk), 90, 999)
    assert [one.key for one in walk] == [3, 1, 2]
    assert tenants.keys(now_ns=999) == [3, 1, 2]


def test_a_debt_outlives_a_queue_that_is_empty_for_a_moment() -> None:
    tenants = Tenants()
    old = tenants.add(90, key=0, tenant="a")
    assert tenants.keys(now_ns=999) == [0]
    tenants.admit(old, 90, 999)
    tenants.add(5, key=1, tenant="b", now_ns=999)
    for key, num_tokens in ((2, 40), (3, 3)):
        tenants.add(num_tokens, key=key, tenant="a", now_ns=999)
    assert tenants.keys(now_ns=1_200) == [1, 3, 2]


def test_those_in_prefill_stand_among_their_own_tenants() -> None:
    tenants = Tenants()
    prefilling = []
    for key, tenant in enumerate("ab"):
        prefilling.append(tenants.add(40, key=key, tenant=tenant))
        tenants.admit(prefilling[-1])
    for key, (tenant, num_tokens) in enumerate((("a", 9), ("a", 99), ("b", 10), ("b", 70)), 2):
        tenants.add(num_tokens, key=key, tenant=tenant)
    assert tenants.keys(*prefilling) == [2, 0, 3, 4, 1, 5]
    in_prefill = tenants.queue.prefilling_in_order(prefilling, 0)
    assert in_prefill == prefilling
    tenants.counters.charge("a", 100.0)
    assert tenants.keys(*prefilling) == [4, 1, 5, 2, 0, 3]
    assert tenants.queue.prefilling_in_order(prefilling, 0) == prefilling[::-1]


def test_a_turn_that_an_admission_ends_ends_within_the_walk() -> None:
    tenants = Tenants()
    for key in range(3):
        tenants.add(5, key=key, tenant="a")
    tenants.add(5, key=3, tenant="b")
    seen = []
    for sequence in tenants.queue.in_order([], 0):
        seen.append(sequence.key)
        tenants.admit(sequence)
    # With two running beside none, the other tenant is favoured.
    assert seen == [0, 1, 3, 2]


def test_one_tenant_among_all_queues_is_in_the_order_of_its_own() -> None:
    for name in ("", "a"):
        tenants, alone = Tenants(), make_queue(max_overtaking_ns=100)
        for key, num_tokens in enumerate((90, 40, 2, 300, 9)):
            joined_ns = (0, 50, 60, 60, 61)[key]
            sequence = tenants.add(num_tokens, key=key, tenant=name, now_ns=joined_ns)
            alone.add(sequence, joined_ns)
        for now_ns in (60, 99, 100, 150, 999):
            assert tenants.keys(now_ns=now_ns) == keys(alone, now_ns)


def test_the_looks_into_the_tree_go_round_the_tenants() -> None:
    cache = CountingCache()
    tenants = Tenants(cache)
    for key in range(400):
        sequence = make_sequence([key] * 3, key=key, tenant=f"t{key % 20}")
        tenants.queue.add(sequence, 0)
    tenants.queue.refresh()
    num_at_once = len(cache.peeked)
    assert 4 <= num_at_once <= 64
    for _ in range(400 // num_at_once * 3):
        tenants.queue.refresh()
    assert set(cache.peeked) == set(range(400))


def test_queues_that_are_empty_and_owe_nothing_are_dropped() -> None:
    tenants = Tenants()
    for key in range(50):
        tenants.queue.remove(tenants.add(5, key=key, tenant=f"t{key}"))
    assert tenants.queue.num_queues <= 2
    assert (len(tenants.queue), tenants.queue.num_joined) == (0, 50)


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


def test_a_prompt_that_is_scored_follows_nobody_and_may_be_followed() -> None:
    scored = make_sequence(LONG, key=1, num_prompt_logprobs=0)
    assert not must_wait(scored, running(LONG))
    scored.state, scored.input_len = SequenceState.RUNNING, len(LONG)
    assert must_wait(make_sequence(LONG, key=2), scored)
