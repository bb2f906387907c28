"""What lower tiers add to an explanation, and what a flush asks of them."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future

import pytest

from prefix_cache import PrefixCache
from prefix_cache.evicted_log import EvictedLog
from prefix_cache.tiers.tier import TierLabel
from runtime.cache_messages import CacheExplanation, ExplainCache, FlushCache, TierUse
from runtime.cache_questions import CacheQuestions
from tests.engine_harness import make_info

SALT = b"namespace"
CHAT = list(range(40))


class ScriptedTiers:
    """`pages` is what each tier is said to have; `asked` and `forgotten` what was wanted."""

    def __init__(self) -> None:
        self.found: Future[dict[TierLabel, int]] = Future()
        self.other_model: Future[bool] = Future()
        self.asked: list[tuple[int, int]] = []
        self.asked_first_tokens: list[Sequence[int]] = []
        self.forgotten: list[Sequence[bytes] | None] = []

    def note_changes(self) -> None: ...

    def count(
        self, namespace: bytes, token_ids: Sequence[int], *, num_cached_tokens: int
    ) -> Future[dict[TierLabel, int]]:
        assert namespace == SALT
        self.asked.append((len(token_ids), num_cached_tokens))
        return self.found

    def has_of_other_model(self, namespace: bytes, token_ids: Sequence[int]) -> Future[bool]:
        assert namespace == SALT
        self.asked_first_tokens.append(token_ids)
        return self.other_model

    def forget(self, identities: Sequence[bytes] | None) -> None:
        self.forgotten.append(identities)

    def uses(self) -> tuple[TierUse, ...]:
        return ()


class Bench:
    """Pages of 4 tokens; 10 tokens of CHAT are on the device, and go on in another way."""

    def __init__(self) -> None:
        self.tiers = ScriptedTiers()
        evicted = EvictedLog()
        self.cache = PrefixCache(num_pages=64, page_size=4, identity_root=b"root", observer=evicted)
        self.questions = CacheQuestions(
            self.cache,
            make_info(num_pages=64, max_model_len=256, page_size=4),
            evicted=evicted,
            tiers=self.tiers,
            clock=lambda: 0,
        )
        self.keep([*CHAT[:10], 90, 90, 90, 90])

    def keep(self, token_ids: list[int], *, owner: str = "us") -> None:
        namespace = SALT if owner == "us" else owner.encode()
        lease = self.cache.acquire(namespace, token_ids, max_tokens=len(token_ids), owner=owner)
        self.cache.extend(lease, -(-len(token_ids) // 4) - len(lease.page_ids))
        self.cache.release(lease, token_ids)

    def ask(self, token_ids: list[int]) -> "Future[CacheExplanation]":
        answer = self.questions.answer(ExplainCache("q", token_ids, SALT, owner="us"))
        assert isinstance(answer, Future)
        return answer  # type: ignore[return-value]

    def explain(self, pages: dict[TierLabel, int], token_ids: list[int]) -> CacheExplanation:
        self.tiers.found.set_result(pages)
        return self.ask(token_ids).result(timeout=0)


def test_without_a_find_in_a_tier_the_device_alone_explains() -> None:
    bench = Bench()
    told = bench.explain({}, CHAT)
    assert (told.matched_tokens, told.tier_tokens) == (10, {})
    assert (told.reason, told.cached_ids) == ("differs", [90, 90, 90, 90])
    assert bench.tiers.asked == [(39, 10)]


def test_tokens_of_the_tiers_begin_where_those_of_the_device_end() -> None:
    # Pages 2 to 4 on disk hold tokens 8 to 19, of which the device has two.
    told = Bench().explain({"disk": 3, "redis": 2}, CHAT)
    assert (told.matched_tokens, told.tier_tokens) == (10, {"disk": 10, "redis": 8})
    assert (told.reason, told.cached_ids) == ("grows", [])


@pytest.mark.parametrize(("length", "num_pages"), [(40, 7), (41, 8), (12, 1)])
def test_where_tiers_have_all_pages_of_a_prompt_nothing_is_missing(
    length: int, num_pages: int
) -> None:
    prompt = list(range(length))
    assert Bench().explain({"disk": num_pages}, prompt).reason is None
    if num_pages > 1:
        assert Bench().explain({"disk": num_pages - 1}, prompt).reason == "grows"


def test_pages_that_the_device_gave_up_are_not_told_as_evicted_where_a_tier_has_them() -> None:
    prompt = [*CHAT[:10], 90, 90, 90, 90]
    bench = Bench()
    bench.cache.flush()
    told = bench.explain({"disk": 2}, prompt)
    assert (told.reason, told.evicted_for) == ("evicted", "flush")
    bench.tiers.found = Future()
    told = bench.explain({"disk": 3}, prompt)
    assert (told.reason, told.evicted_for, told.evicted_at_ns) == (None, None, None)


@pytest.mark.parametrize("is_found_first", [False, True])
def test_what_another_model_has_left_in_a_tier_is_told_where_nothing_else_is_known(
    is_found_first: bool,
) -> None:
    bench = Bench()
    waiting = bench.ask([70, *CHAT])
    assert bench.tiers.asked_first_tokens == [[70, *CHAT[:-1]]]
    settle: list[Callable[[], None]] = [
        lambda: bench.tiers.found.set_result({}),
        lambda: bench.tiers.other_model.set_result(True),
    ]
    for step in settle if is_found_first else settle[::-1]:
        assert not waiting.done()
        step()
    assert waiting.result(timeout=0).reason == "model_changed"


def test_another_model_is_no_reason_where_it_has_nothing_or_this_one_has_pages() -> None:
    bench = Bench()
    bench.tiers.other_model.set_result(False)
    assert bench.explain({}, [70, *CHAT]).reason == "never_seen"
    bench = Bench()
    bench.tiers.other_model.set_result(True)
    assert bench.explain({"disk": 1}, [70, *CHAT]).reason == "grows"
    bench = Bench()
    assert bench.explain({}, CHAT).reason == "differs"
    assert bench.tiers.asked_first_tokens == []


def test_an_answer_waits_for_the_tiers_and_fails_with_them() -> None:
    bench = Bench()
    waiting = bench.ask(CHAT)
    assert not waiting.done()
    bench.tiers.found.set_exception(OSError("the disk is gone"))
    assert isinstance(waiting.exception(timeout=0), OSError)


def test_tiers_are_not_asked_where_the_device_has_all() -> None:
    bench = Bench()
    answer = bench.questions.answer(ExplainCache("q", CHAT[:11], SALT, owner="us"))
    assert isinstance(answer, CacheExplanation)
    assert (answer.matched_tokens, answer.reason) == (10, None)
    assert bench.tiers.asked == []


def test_a_flush_of_all_has_tiers_forget_all_and_one_of_an_owner_its_pages() -> None:
    bench = Bench()
    bench.keep(CHAT[20:], owner="them")
    bench.cache.flush("us")  # what has left the tree before is not meant
    bench.questions.answer(FlushCache("q", owner="them"))
    (forgotten,) = bench.tiers.forgotten
    assert set(forgotten or ()) == set(bench.cache.identities_of(b"them", CHAT[20:], num_pages=5))
    bench.questions.answer(FlushCache("q"))
    assert bench.tiers.forgotten[1:] == [None]


def test_a_flush_may_leave_the_tiers_alone() -> None:
    bench = Bench()
    bench.questions.answer(FlushCache("q", tiers=False))
    assert bench.tiers.forgotten == []
    assert bench.cache.counts().cached == 0
