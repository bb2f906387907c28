"""An ECMA-262 pattern as the language of the texts in which it is found.

Assertions are resolved from the right: what may follow a place in the pattern, up to the end of
the text, is known for each kind of place to its left (`_Following`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile

from grammar.errors import UnsupportedPattern
from grammar.schema.characters import CharSet, inverted, without
from grammar.schema.pattern_escapes import ASCII_WORD, POSSIBLE_WORD
from grammar.schema.pattern_parts import (
    Boundary,
    Choice,
    End,
    Look,
    Part,
    Reading,
    Repeated,
    Sequence,
    Start,
)
from grammar.schema.pattern_syntax import parse_parts
from grammar.schema.regex import (
    ANY_TEXT,
    EMPTY,
    NOTHING,
    Alt,
    And,
    Cat,
    Chars,
    Not,
    Regex,
    Repeat,
    both,
    cat,
    other,
    repeat,
    union,
)
from grammar.schema.regex_edges import ending_in, nonempty, starting_in
from grammar.schema.regex_nodes import sequence

# A repeated group with assertions is written out so often; each time copies what follows.
MAX_UNROLLED = 8
# Each cuts the pattern in two.
MAX_LOOK_BEHINDS = 8
# Nodes of the language when it is written down, where what is shared counts each time.
MAX_LANGUAGE_SIZE = 100_000
# Levels of it: who walks through a language recurses as deep.
MAX_LANGUAGE_HEIGHT = 100
# Letters of words for certain, and those that only some readings take for such.
UNSURE_WORD = without(POSSIBLE_WORD, ASCII_WORD)
NO_WORD = inverted(POSSIBLE_WORD)


def parse_pattern(source: str, *, reading: Reading) -> Regex:
    """The texts in which the pattern is found: under every reading of its class escapes, or
    ("wide") under any. Who negates a pattern takes `other` of its wide language.

    Raises: UnsupportedPattern.
    """
    found = _search(_flat(parse_parts(source, reading)))
    _check_size(found)
    return found


@dataclass(frozen=True, slots=True)
class _Following:
    """What may follow: at the start of the text, behind a letter of a word, behind another
    character, behind one of which readings differ whether it is of a word."""

    start: Regex
    word: Regex
    other: Regex
    unsure: Regex

    def each(self, change: Callable[[Regex], Regex]) -> "_Following":
        return _Following(*map(change, (self.start, self.word, self.other, self.unsure)))

    def also(self, more: "_Following", join: Callable[..., Regex]) -> "_Following":
        return _Following(
            join(self.start, more.start),
            join(self.word, more.word),
            join(self.other, more.other),
            join(self.unsure, more.unsure),
        )

    def is_same_inside(self) -> bool:
        """Whether it does not matter which character stands before."""
        return self.word is self.other is self.unsure

    def is_same(self) -> bool:
        return self.is_same_inside() and self.start is self.word

    def after(self, node: Regex) -> Regex:
        """What may follow where first comes a text of the node that is not empty."""
        if self.is_same_inside():
            return cat(nonempty(node), self.word)
        return union(
            cat(ending_in(node, ASCII_WORD), self.word),
            cat(ending_in(node, NO_WORD), self.other),
            cat(ending_in(node, UNSURE_WORD), self.unsure),
        )


ANYTHING = _Following(ANY_TEXT, ANY_TEXT, ANY_TEXT, ANY_TEXT)


def _flat(part: Part) -> list[Part]:
    """The items of a sequence, of sequences in it too."""
    if not isinstance(part, Sequence):
        return [part]
    return [item for inner in part.items for item in _flat(inner)]


def _search(items: list[Part]) -> Regex:
    """Where the sequence is found in a text."""
    if len(items) == 1 and isinstance(items[0], Choice):
        return union(*(_search(_flat(branch)) for branch in items[0].items))
    if isinstance(items[0], Start):
        looks = [*takewhile(_is_look_ahead, items[1:])]
        if looks and len(items) > len(looks) + 1:
            conditions = (_search([items[0], look]) for look in looks)
            return both(_search([items[0], *items[len(looks) + 1 :]]), *conditions)
    behind = [i for i, item in enumerate(items) if isinstance(item, Look) and item.is_behind]
    if len(behind) > MAX_LOOK_BEHINDS:
        raise UnsupportedPattern(f"more than {MAX_LOOK_BEHINDS} look-behinds are not supported")
    if behind:
        return _split_at(items, behind[-1])
    return _found(_resolved(Sequence(tuple(items)), ANYTHING))


def _found(following: _Following) -> Regex:
    """The whole texts: anything may come before."""
    if following.is_same():
        return cat(ANY_TEXT, following.word)
    return union(following.start, following.after(ANY_TEXT))


def _split_at(items: list[Part], index: int) -> Regex:
    """What ends at the look-behind, then what follows it. The left part is resolved as if the
    text ended there: unless it does, nothing in it may look ahead."""
    left, look, right = items[:index], items[index], items[index + 1 :]
    assert isinstance(look, Look)
    is_at_end = bool(right) and all(isinstance(item, End) for item in right)
    if not (is_at_end or all(map(_looks_only_back, left))) or not _looks_only_back(look.item):
        raise UnsupportedPattern("look-behind together with other assertions is not supported")
    behind = _search([*_flat(look.item), End()])
    following = _resolved(Sequence(tuple(right)), ANYTHING)
    if not following.is_same():
        raise UnsupportedPattern("an assertion behind a look-behind is not supported")
    before = both(_search([*left, End()]), other(behind) if look.is_negated else behind)
    return cat(before, following.word)


def _is_look_ahead(part: Part) -> bool:
    return isinstance(part, Look) and not part.is_behind


def _looks_only_back(part: Part) -> bool:
    match part:
        case Sequence() | Choice():
            return all(map(_looks_only_back, part.items))
        case Repeated():
            return _looks_only_back(part.item)
        case Look():
            return part.is_behind
        case End() | Boundary():
            return False
    return True


def _resolved(part: Part, following: _Following) -> _Following:
    """What may follow the place before the part, where `following` may follow the one behind."""
    match part:
        case Sequence():
            for item in reversed(part.items):
                following = _resolved(item, following)
            return following
        case Choice():
            branches = [_resolved(branch, following) for branch in part.items]
            return _alternatives(branches)
        case Repeated():
            return _repeated(part, following)
        case Start():
            return _Following(following.start, NOTHING, NOTHING, NOTHING)
        case End():
            return following.each(lambda node: EMPTY if node.is_nullable else NOTHING)
        case Look():
            if part.is_behind:
                raise UnsupportedPattern("look-behind within a group is not supported")
            seen = _resolved(part.item, ANYTHING)
            return following.also(seen.each(other) if part.is_negated else seen, both)
        case Boundary():
            return _bounded(part, following)
    return _before(part, following)


def _before(node: Regex, following: _Following) -> _Following:
    if following.is_same():
        return following.each(lambda rest: cat(node, rest))
    later = following.after(node)
    return following.each(lambda rest: union(later, rest) if node.is_nullable else later)


def _bounded(part: Boundary, following: _Following) -> _Following:
    """Narrow: a boundary (or none) whatever the unsure letters are; wide: with some choice."""
    is_narrow = part.reading == "narrow"
    word: CharSet = ASCII_WORD if is_narrow else POSSIBLE_WORD
    no_word: CharSet = inverted(POSSIBLE_WORD if is_narrow else ASCII_WORD)

    def before_word(node: Regex) -> Regex:
        return starting_in(node, word)

    def before_other(node: Regex) -> Regex:
        return union(starting_in(node, no_word), EMPTY if node.is_nullable else NOTHING)

    after_other, after_word = before_word, before_other
    if part.is_negated:
        after_other, after_word = before_other, before_word
    return _Following(
        start=after_other(following.start),
        word=after_word(following.word),
        other=after_other(following.other),
        unsure=NOTHING if is_narrow else following.unsure,
    )


def _repeated(part: Repeated, following: _Following) -> _Following:
    if part.high is None or part.high > MAX_UNROLLED:
        later = _behind_start(part.item)
        return _tempered(part, following) if later is None else _first(part, later, following)
    found = following
    for _ in range(part.high - part.low):
        found = following.also(_resolved(part.item, found), union)
    for _ in range(part.low):
        found = _resolved(part.item, found)
    return found


def _behind_start(part: Part) -> Regex | None:
    """The part where the text has begun already; None if it asserts more than the start."""
    match part:
        case Start():
            return NOTHING
        case Sequence() | Choice():
            items = [_behind_start(item) for item in part.items]
            known = [item for item in items if item is not None]
            if len(known) < len(items):
                return None
            return cat(*known) if isinstance(part, Sequence) else union(*known)
        case Repeated():
            item = _behind_start(part.item)
            return None if item is None else repeat(item, part.low, part.high)
        case End() | Look() | Boundary():
            return None
    return part


def _first(part: Repeated, later: Regex, following: _Following) -> _Following:
    """A repetition that asserts the start: only its first time can be there."""
    high = None if part.high is None else part.high - 1
    rest = repeat(later, max(part.low - 1, 0), high)
    if part.low > 1 and _resolved(part.item, following.each(lambda _: EMPTY)).start.is_nullable:
        raise UnsupportedPattern("an assertion within a repetition is not supported")
    once = _resolved(part.item, _before(rest, following))
    return once if part.low else following.also(once, union)


def _tempered(part: Repeated, following: _Following) -> _Following:
    """`(?:(?!x).)*` up to the end of the text: nowhere in it begins an x."""
    match _flat(part.item):
        case [Look(is_behind=False, is_negated=True) as look, Chars() as step]:
            seen = _resolved(look.item, ANYTHING)
            ends = following.each(lambda node: union(node, EMPTY))
            if seen.is_same() and ends.is_same() and ends.word is EMPTY:
                forbidden = cat(ANY_TEXT, nonempty(seen.word))
                steps = both(repeat(step, part.low, part.high), other(forbidden))
                empty = EMPTY if part.low == 0 else NOTHING
                return following.each(lambda node: _if_nullable(node, union(steps, empty)))
    raise UnsupportedPattern("an assertion within a repetition is not supported")


def _if_nullable(node: Regex, found: Regex) -> Regex:
    return found if node.is_nullable else NOTHING


def _alternatives(branches: Iterable[_Following]) -> _Following:
    found, *rest = branches
    for branch in rest:
        found = found.also(branch, union)
    return found


def _check_size(node: Regex) -> None:
    size, height = _extent(node, {}, depth=0)
    if size > MAX_LANGUAGE_SIZE or height > MAX_LANGUAGE_HEIGHT:
        raise UnsupportedPattern("the pattern's groups or look-around nest or multiply too much")


def _extent(node: Regex, known: dict[Regex, tuple[int, int]], *, depth: int) -> tuple[int, int]:
    """(nodes of the tree, its height); `known` makes that linear in the nodes that differ."""
    if node not in known:
        inner: Iterable[Regex] = ()
        if isinstance(node, Cat):
            inner = sequence(node)
        elif isinstance(node, Alt | And):
            inner = node.items
        elif isinstance(node, Repeat | Not):
            inner = (node.node,)
        if depth > MAX_LANGUAGE_HEIGHT:
            return 1, 1
        extents = [_extent(item, known, depth=depth + 1) for item in inner]
        height = max((height for _, height in extents), default=0)
        known[node] = 1 + sum(size for size, _ in extents), 1 + height
    return known[node]
