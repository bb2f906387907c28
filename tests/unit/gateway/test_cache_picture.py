"""What the prefix cache holds, drawn for terminals of any width and kind."""

import datetime

import msgspec
import pytest

from gateway.cache_picture import (
    Terminal,
    duration,
    explanation_lines,
    size,
    state_lines,
    tree_lines,
)
from gateway.schemas.cache_response import (
    CacheExplanation,
    CacheState,
    Difference,
    HitRate,
    HotPrefixState,
    OwnerState,
    PoolState,
    TierState,
    TokenShown,
    TreeNode,
    TreeState,
)
from gateway.terminal_text import cells, cut, harmless, last_cells

NOW = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
PLAIN = Terminal(width=100, has_colour=False, is_plain=False, now=NOW)


def node(number: int, parent: int | None, text: str | None = "text", **fields: object) -> TreeNode:
    return TreeNode(
        **{
            "id": number,
            "parent": parent,
            "owner": "me",
            "start": 0,
            "tokens": 1_392,
            "pages": 87,
            "hits": 9,
            "last_used_at": "2026-01-02T11:59:57.000Z",
            "pinned_until": None,
            "in_use": False,
            "text": text,
            **fields,
        }  # type: ignore[arg-type]
    )


TREE = (
    node(0, None, "You are kind."),
    node(1, 0, "Hi", pinned_until="2026-01-02T12:05:00.000Z"),
    node(2, 1, "there", in_use=True),
    node(3, 0, "Bye", hits=0, last_used_at=None),
)
STATE = CacheState(
    model="tiny",
    scope="all",
    page_size=16,
    page_bytes=92_160,
    pool=PoolState(100, 9_216_000, 10, 75, 8, 15, 1_234),
    tiers=(
        TierState("disk", True, 4_096, 12, 1_024, 5, 1, 4, 3, 0, 0, {"crc": 2}, {}),
        TierState("redis", False, None),
    ),
    hit_rates=(HitRate(300, 2, 1_000, 500, 0.5),),
    owners=(
        OwnerState(
            "me", True, 50, 4_608_000, 3, 80,
            (HitRate(60, 2, 1_000, 925, 0.925), HitRate(None, 0, 0, 0, None)),
        ),
        OwnerState("0123456789abcdef", False, 25, 2_304_000, 0, None, ()),
    ),
    hottest=(HotPrefixState(1_400, 88, "2026-01-02T10:00:00.000Z", "You are", "kind."),),
    tree=TreeState(TREE, 7),
)  # fmt: skip


def test_the_tree_is_drawn_with_a_branch_for_each_edge() -> None:
    lines = list(tree_lines(TREE, PLAIN))
    assert [line[:12].rstrip() for line in lines] == [
        "└─ You are k",
        "   ├─ Hi",
        "   │  └─ the",
        "   └─ Bye",
    ]
    assert "1,392 tokens" in lines[0]
    assert lines[0].endswith("9 hits    3 s ago")
    assert lines[1].endswith("pinned 5 min left")
    assert lines[2].endswith("in use")
    assert "never" in lines[3]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_of_a_tree_is_wider_than_the_terminal(width: int) -> None:
    wide = (node(0, None, "日本語" * 50), node(1, 0, "e\u0301" * 200), node(2, 1, "x" * 500))
    terminal = Terminal(width, False, False, NOW)
    lines = list(tree_lines(wide, terminal))
    assert len(lines) == 3
    notes = max(cells(line) for line in tree_lines((node(0, None, ""),), terminal))
    assert all(cells(line) <= max(width, notes + 20) for line in lines)
    assert all("…" in line for line in lines)


def test_a_tree_deeper_than_calls_may_nest_is_drawn_within_the_width() -> None:
    deep = tuple(node(index, index - 1 if index else None) for index in range(3_000))
    lines = list(tree_lines(deep, PLAIN))
    assert len(lines) == 3_000
    assert all("text" in line for line in lines)
    assert max(map(cells, lines)) <= 100


def test_owners_have_headings_where_there_are_several() -> None:
    others = (*TREE, node(9, None, None, owner=""))
    lines = list(tree_lines(others, PLAIN))
    assert (lines[0], lines[5]) == ("owner me", "owner (none)")
    assert lines[6].startswith("└─ (another owner's)")


def test_the_whole_picture_has_sizes_rates_and_the_hottest() -> None:
    text = "\n".join(state_lines(STATE, PLAIN))
    assert "tiny, all owners" in text
    assert "███████████████░░░░░ 75 of 100 pages cached, 6.6 MiB of 8.8 MiB" in text
    assert "8 of them in use, 15 being written, 10 free, 1,234 evicted" in text
    assert "12 pages, 1.0 KiB of 4.0 KiB; 5 found, 4 fetched, 3 stored, 2 that did not fit" in text
    assert "redis      down" in text
    assert "hits       5 min 50.0 % of 1,000" in text
    assert "own        50 pages, 4.4 MiB, 3 pinned, quota 80" in text
    assert "hits: 1 min 92.5 % of 1,000 | since the start -" in text
    assert "0123456789 25 pages" in text
    assert "1,400 tokens     88 hits     2 h ago  You are … kind." in text
    assert "tree: 4 edges, 7 smaller left out" in text
    assert "\x1b" not in text


def test_a_key_sees_its_own_pages_of_the_pool() -> None:
    own = msgspec.structs.replace(
        STATE, scope="own", pool=PoolState(100, 9_216_000), owners=STATE.owners[:1]
    )
    text = "\n".join(state_lines(own, PLAIN))
    assert "tiny, this key's" in text
    assert "50 of 100 pages cached" in text
    assert "92.5" not in text  # with one owner its rates are those above
    assert "evicted" not in text


def test_colours_are_for_terminals_and_change_no_width() -> None:
    coloured = Terminal(100, True, False, NOW)
    lines = list(state_lines(STATE, coloured))
    assert any("\x1b[2m" in line for line in lines)
    stripped = [
        line.replace("\x1b[2m", "").replace("\x1b[1m", "").replace("\x1b[0m", "") for line in lines
    ]
    assert stripped == list(state_lines(STATE, PLAIN))


def test_without_unicode_everything_is_ascii() -> None:
    plain = Terminal(100, False, True, NOW)
    odd = msgspec.structs.replace(STATE, tree=TreeState((node(0, None, "é日" * 60),), 0))
    text = "\n".join(state_lines(odd, plain))
    assert text.isascii()
    assert "`- \\xe9\\u65e5" in text
    assert "#####" in text


def test_nothing_in_a_text_reaches_the_terminal_as_a_command() -> None:
    shown = harmless("a\x1b[31mb\nc\r\t\x07\u202e\u200b\x9b", is_plain=False)
    assert shown == "a\\x1b[31mb\\nc\\r\\t\\x07\\u202e\\u200b\\x9b"
    evil = (node(0, None, "\x1b]0;owned\x07"),)
    assert not any("\x1b" in line or "\x07" in line for line in tree_lines(evil, PLAIN))


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("e\u0301e\u0301e", 2, "e\u0301…"),
    ],
)
def test_texts_are_cut_by_cells(text: str, width: int, expected: str) -> None:
    assert cut(text, width) == expected
    assert cells(cut(text, width)) <= width


def test_the_end_of_a_text_is_taken_by_cells() -> None:
    assert last_cells("abc日", 3) == "c日"
    assert last_cells("abc", 10) == "abc"
    assert last_cells("日本", 3) == "本"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.2, "0 s"), (59, "59 s"), (60, "1 min"), (7_199, "1 h"), (200_000, "2 d")],
)
def test_durations_have_one_unit(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_sizes_have_a_fitting_unit() -> None:
    assert [size(n) for n in (5, 2048, 3 << 20, 5 << 30, 7 << 40)] == [
        "5 B", "2.0 KiB", "3.0 MiB", "5.0 GiB", "7.0 TiB",
    ]  # fmt: skip


def told(**fields: object) -> CacheExplanation:
    return CacheExplanation(
        **{
            "model": "tiny",
            "prompt_tokens": 101,
            "cacheable_tokens": 100,
            "matched_tokens": 48,
            "tiers": {"device": 48, "disk": 16},
            "reason": "differs",
            "explanation": "It\ndiffers.",
            "first_difference": Difference(
                64, "before\n", TokenShown(1, "o", "ne"), TokenShown(2, "t", "wo"), None
            ),
            **fields,
        }  # type: ignore[arg-type]
    )


def test_an_explanation_shows_both_sides_of_the_difference() -> None:
    lines = list(explanation_lines(told(), PLAIN))
    assert lines == [
        "█████████████░░░░░░░ 64 of 100 tokens cached (64.0 %): device 48, disk 16",
        "differs: It\\ndiffers.",
        "  both       before\\n",
        "  prompt     [o]ne",
        "  cached     [t]wo",
    ]


def test_an_explanation_without_another_side_or_difference_says_so() -> None:
    alone = Difference(64, "", TokenShown(1, "o", "ne"), None, None)
    lines = list(explanation_lines(told(first_difference=alone), PLAIN))
    assert lines[-1] == "  cached     (nothing)"
    whole = told(reason=None, first_difference=None, cacheable_tokens=0, tiers={"device": 0})
    assert [line.split(":")[0] for line in explanation_lines(whole, PLAIN)] == [
        "████████████████████ 0 of 0 tokens cached (100.0 %)",
        "complete",
    ]
