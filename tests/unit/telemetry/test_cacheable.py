"""The upper bound of what a cache could have had, against a search through all of the past."""

import random

from telemetry.cacheable import Exchange, KnownTokens, cacheable_tokens


def test_the_next_turn_could_have_all_of_the_last_one() -> None:
    first = Exchange(0, 10, (1, 2, 3), (4, 5))
    second = Exchange(20, 30, (1, 2, 3, 4, 5, 6, 7), (8,))
    assert cacheable_tokens([first, second]) == [0, 5]


def test_an_answer_is_known_from_its_end_and_a_prompt_from_its_start() -> None:
    first = Exchange(0, 100, (1, 2, 3), (4, 5))
    early = Exchange(50, 60, (1, 2, 3, 9), ())
    late = Exchange(100, 110, (1, 2, 3, 4, 5, 6), ())
    assert cacheable_tokens([first, early, late]) == [0, 3, 5]


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    same = [Exchange(at, at + 1, (1, 2, 3), ()) for at in (0, 10)]
    assert cacheable_tokens(same) == [0, 2]
    assert cacheable_tokens([Exchange(0, 1, (), ())] * 2) == [0, 0]


def test_exchanges_may_come_in_any_order() -> None:
    late, early = Exchange(20, 30, (1, 2, 9), ()), Exchange(0, 10, (1, 2, 3), ())
    assert cacheable_tokens([late, early]) == [2, 0]


def test_ids_of_several_bytes_are_told_apart() -> None:
    known = KnownTokens()
    known.add((256, 1))
    assert known.longest_prefix((256, 2)) == 1
    assert known.longest_prefix((1, 256)) == 0
    assert known.longest_prefix((257, 1)) == 0


def test_a_neighbour_in_order_has_the_longest_common_beginning() -> None:
    rng = random.Random(1)
    known = KnownTokens()
    past: list[tuple[int, ...]] = []
    for _ in range(400):
        ids = tuple(rng.choices((0, 1, 255, 256, 70_000), k=rng.randint(0, 8)))
        expected = max((_common(ids, one) for one in past), default=0)
        assert known.longest_prefix(ids) == expected
        known.add(ids)
        past.append(ids)


def _common(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    return next(
        (index for index, (one, two) in enumerate(zip(left, right, strict=False)) if one != two),
        min(len(left), len(right)),
    )


def test_what_was_known_before_counts_and_is_known_afterwards() -> None:
    known = KnownTokens()
    first = Exchange(0, 10, (1, 2, 3), (4,))
    later = Exchange(20, 30, (1, 2, 3, 4, 5), ())
    assert cacheable_tokens([first], known) == [0]
    assert cacheable_tokens([later], known) == [4]
    assert cacheable_tokens([later]) == [0]
