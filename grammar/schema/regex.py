"""Regular languages over Unicode text: constructors that keep them small, membership, emptiness.

Nothing here knows of JSON spelling (grammar.schema.terminals) or of the syntax of patterns
(grammar.schema.patterns).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, islice, takewhile

from grammar.errors import ConstraintTooExpensive
from grammar.schema import characters
from grammar.schema.characters import CharSet, Question
from grammar.schema.regex_nodes import (
    Alt,
    And,
    Cat,
    Chars,
    Not,
    Regex,
    Repeat,
    Text,
    finite_texts,
    interned,
    plain_words,
    sequence,
)
from grammar.schema.regex_runs import Run, counts_of, is_run, run_of, touching_counts

__all__ = [
    "ANY_CHAR",
    "ANY_TEXT",
    "EMPTY",
    "NOTHING",
    "Alt",
    "And",
    "Cat",
    "Chars",
    "Not",
    "Regex",
    "Repeat",
    "Text",
    "both",
    "cat",
    "finite_texts",
    "is_empty",
    "length_between",
    "literal",
    "matches",
    "next_steps",
    "one_of",
    "other",
    "repeat",
    "union",
]

# Where more named classes than this meet, their intersection is left to the automaton.
MAX_SPLIT_NAMES = 6
# What following one text may cost, counted in alternatives derived; about two seconds.
MAX_WORK = 200_000
MAX_REMEMBERED_STEPS = 20_000


def one_of(members: CharSet) -> Regex:
    """One character of the set; the only way to a Chars."""
    text = characters.single(members)
    if text is not None:
        return literal(text)
    return interned(Chars, members, is_nullable=False, is_plain=True)


def literal(text: str) -> Regex:
    return interned(Text, text, is_nullable=not text, is_plain=True)


def cat(*parts: Regex) -> Regex:
    if not parts:
        return EMPTY
    result = parts[-1]
    flat = [item for part in parts[:-1] for item in sequence(part)]
    for is_text, run in groupby(reversed(flat), lambda part: isinstance(part, Text)):
        if is_text:
            texts = [part.text for part in run if isinstance(part, Text)]
            result = _prepended(literal("".join(reversed(texts))), result)
            continue
        for part in run:
            result = _prepended(part, result)
    return result


def union(*parts: Regex) -> Regex:
    items = _flattened(Alt, parts)
    if ANY_TEXT in items or any(isinstance(i, Not) and i.node in items for i in items):
        return ANY_TEXT
    items = _merged_runs(_merged_characters(items))
    if EMPTY in items:
        del items[EMPTY]
        rest = _alternatives(tuple(items))
        return EMPTY if rest is NOTHING else repeat(rest, 0, 1)
    return _alternatives(tuple(items))


def both(*parts: Regex) -> Regex:
    """The texts that are in every one of the languages."""
    items = _flattened(And, parts)
    items.pop(ANY_TEXT, None)
    if NOTHING in items or any(isinstance(i, Not) and i.node in items for i in items):
        return NOTHING
    words = min((w for i in items if (w := plain_words(i)) is not None), key=len, default=None)
    if words is not None:
        kept = (word for word in words if all(matches(item, word) for item in items))
        return union(*map(literal, kept))
    items = _intersected_runs(items)
    if len(items) < 2:
        return next(iter(items), ANY_TEXT)
    if NOTHING in items or any(isinstance(item, Text) for item in items):
        return both(*items)
    is_nullable = all(item.is_nullable for item in items)
    key = (And, frozenset(items))
    return interned(And, tuple(items), key=key, is_nullable=is_nullable, is_plain=False)


def other(node: Regex) -> Regex:
    """The texts that are not in the language."""
    if isinstance(node, Not):
        return node.node
    run = run_of(node)
    if run is not None and run[0] == characters.EVERY:
        return union(length_between(0, run[1] - 1), _longer_than(run[2]))
    if node is NOTHING:
        return ANY_TEXT
    return interned(Not, node, is_nullable=not node.is_nullable, is_plain=False)


def repeat(node: Regex, low: int, high: int | None) -> Regex:
    """`low` to `high` times in a row; None: without end."""
    if high is not None and high < low:
        return NOTHING
    if node is NOTHING or node is EMPTY or high == 0:
        return NOTHING if node is NOTHING and low > 0 else EMPTY
    if node.is_nullable:
        if high == 1:
            return node
        low = 0
    if isinstance(node, Repeat) and node.low <= 1:
        if node.high is None or (low, high) == (0, 1):
            return _repeated(node.node, low if node.low else 0, node.high)
        if node.high == 1:
            return _repeated(node.node, low, high)
    return _repeated(node, low, high)


def length_between(low: int, high: int | None) -> Regex:
    """Texts of so many code points; nothing where `high` is below `low`."""
    return repeat(ANY_CHAR, max(low, 0), high)


def matches(node: Regex, text: str) -> bool:
    """Whether the text is in the language; linear in its length.

    Raises: ConstraintTooExpensive where the automaton of the language grows without measure.
    """
    return _automaton(node).matches(text)


def is_empty(node: Regex, *, max_steps: int = 2000) -> bool | None:
    """None where it cannot be told within so many states; never wrongly True."""
    found = _reaches_end(node, max_steps=max_steps, is_real=True)
    if found or found is None:
        return None if found is None else False
    if not _names(node):
        return True
    return True if _reaches_end(node, max_steps=max_steps, is_real=False) is False else None


def next_steps(node: Regex) -> list[tuple[str, Regex]]:
    """A character for each way on (where named classes decide, perhaps not for all) and what may
    follow it."""
    return [(chr(letter.code), _derived(node, letter)) for letter in _letters(node)]


def _flattened(kind: type[Alt] | type[And], parts: Iterable[Regex]) -> dict[Regex, None]:
    """The items in the order of their first appearance; an optional one is two."""
    items: dict[Regex, None] = {}
    for part in parts:
        if isinstance(part, kind):
            items.update(dict.fromkeys(part.items))
        elif kind is Alt and isinstance(part, Repeat) and (part.low, part.high) == (0, 1):
            items.update(dict.fromkeys((EMPTY, *_flattened(kind, (part.node,)))))
        elif kind is And or part is not NOTHING:
            items[part] = None
    return items


def _merged_characters(items: dict[Regex, None]) -> dict[Regex, None]:
    """All single characters as one class."""
    runs = {item: run for item in items if (run := run_of(item)) and run[1] == run[2] == 1}
    if len(runs) < 2:
        return items
    members: CharSet = characters.NO_CHARACTERS
    for run in runs.values():
        members = characters.joined(members, run[0])
    return dict.fromkeys((one_of(members), *(item for item in items if item not in runs)))


def _merged_runs(items: dict[Regex, None]) -> dict[Regex, None]:
    """Repetitions of one class as one, where their counts overlap or touch."""
    runs = {item: run for item in items if (run := run_of(item))}
    by_members: dict[CharSet, list[Run]] = {}
    for run in runs.values():
        by_members.setdefault(run[0], []).append(run)
    if len(by_members) == len(runs):
        return items
    merged = (
        repeat(one_of(m), low, high)
        for m, rs in by_members.items()
        for low, high in touching_counts(rs)
    )
    return dict.fromkeys((*merged, *(item for item in items if item not in runs)))


def _intersected_runs(items: dict[Regex, None]) -> dict[Regex, None]:
    """All repetitions of a class as one: of what the classes share, by both counts."""
    runs = {item: run for item in items if (run := run_of(item))}
    names = {name for members, _, _ in runs.values() for name in characters.class_names(members)}
    if len(runs) < 2 or len(names) > MAX_SPLIT_NAMES:
        return items
    members: CharSet = characters.EVERY
    low, high = 0, None
    for run_members, run_low, run_high in runs.values():
        members, low = characters.common(members, run_members), max(low, run_low)
        high = run_high if high is None else high if run_high is None else min(high, run_high)
    shared = repeat(one_of(members), low, high)
    return dict.fromkeys((shared, *(item for item in items if item not in runs)))


def _longer_than(length: int | None) -> Regex:
    return NOTHING if length is None else length_between(length + 1, None)


def _alternatives(items: tuple[Regex, ...]) -> Regex:
    if len(items) < 2:
        return items[0] if items else NOTHING
    return interned(
        Alt,
        items,
        key=(Alt, frozenset(items)),
        is_nullable=any(item.is_nullable for item in items),
        is_plain=all(item.is_plain for item in items),
    )


def _repeated(node: Regex, low: int, high: int | None) -> Regex:
    if (low, high) == (1, 1):
        return node
    is_nullable = node.is_nullable or low == 0
    return interned(Repeat, node, low, high, is_nullable=is_nullable, is_plain=node.is_plain)


def _prepended(head: Regex, tail: Regex) -> Regex:
    """`head`, which is no Cat, before `tail`; two counts of one node become one."""
    if head is NOTHING or tail is NOTHING:
        return NOTHING
    if head is EMPTY or tail is EMPTY:
        return tail if head is EMPTY else head
    if tail is ANY_TEXT and head.is_nullable:
        return ANY_TEXT
    first, rest = (tail.head, tail.tail) if isinstance(tail, Cat) else (tail, EMPTY)
    if isinstance(head, Text) and isinstance(first, Text):
        return _prepended(literal(head.text + first.text), rest)
    counts, next_counts = counts_of(head), counts_of(first)
    if counts[0] is next_counts[0] and not isinstance(head, Text):
        ends = (counts[2], next_counts[2])
        high = None if None in ends else sum(end for end in ends if end is not None)
        return _prepended(repeat(counts[0], counts[1] + next_counts[1], high), rest)
    return interned(
        Cat,
        head,
        tail,
        is_nullable=head.is_nullable and tail.is_nullable,
        is_plain=head.is_plain and tail.is_plain,
    )


@dataclass(frozen=True, slots=True)
class _Letter:
    """A character to derive by; `is_named` makes up which named classes it belongs to."""

    code: int
    is_named: Question | None = None


def _derived(node: Regex, letter: _Letter) -> Regex:
    """What may follow after the letter."""
    match node:
        case Chars():
            is_in = characters.contains(node.members, letter.code, is_named=letter.is_named)
            return EMPTY if is_in else NOTHING
        case Text():
            is_first = node.text[:1] == chr(letter.code)
            return literal(node.text[1:]) if is_first else NOTHING
        case Cat():
            return _derived_sequence(node, letter)
        case Alt():
            return union(*(_derived(item, letter) for item in node.items))
        case Repeat():
            high = None if node.high is None else node.high - 1
            rest = repeat(node.node, max(node.low - 1, 0), high)
            return _distributed(_derived(node.node, letter), rest)
        case And():
            return both(*(_derived(item, letter) for item in node.items))
        case Not():
            return other(_derived(node.node, letter))


def _derived_sequence(node: Cat, letter: _Letter) -> Regex:
    """A loop: a long sequence is no deep recursion."""
    found: list[Regex] = []
    rest: Regex = node
    while isinstance(rest, Cat):
        found.append(_distributed(_derived(rest.head, letter), rest.tail))
        if not rest.head.is_nullable:
            return union(*found)
        rest = rest.tail
    return union(*found, _derived(rest, letter))


def _distributed(head: Regex, tail: Regex) -> Regex:
    """Alternatives before a tail, each with the tail: so there are no more than places in the
    pattern, however long the text."""
    if not isinstance(head, Alt):
        return cat(head, tail)
    return union(*(cat(item, tail) for item in head.items))


class _Automaton:
    """The states of a language, made as texts come to them."""

    def __init__(self, start: Regex) -> None:
        self._start = start
        self._steps: dict[tuple[Regex, str], Regex] = {}

    def matches(self, text: str) -> bool:
        state, position, work = self._start, 0, 0
        while position < len(text) and state is not NOTHING:
            run = run_of(state)
            if run is not None:
                return is_run(text[position:], run)
            if state is EMPTY:
                return False
            first, rest = (state.head, state.tail) if isinstance(state, Cat) else (state, EMPTY)
            if isinstance(first, Text):
                state = rest if text.startswith(first.text, position) else NOTHING
                position += len(first.text)
                continue
            step = (state, text[position])
            if step not in self._steps:
                work += num_alternatives(state)
                self._remember(step, work)
            state = self._steps[step]
            position += 1
        return position <= len(text) and state.is_nullable

    def _remember(self, step: tuple[Regex, str], work: int) -> None:
        if work > MAX_WORK:
            raise ConstraintTooExpensive(f"{MAX_WORK} steps of an automaton")
        if len(self._steps) >= MAX_REMEMBERED_STEPS:
            self._steps.clear()
        self._steps[step] = _derived(step[0], _Letter(ord(step[1])))


@lru_cache(maxsize=256)
def _automaton(node: Regex) -> _Automaton:
    return _Automaton(node)


def num_alternatives(node: Regex) -> int:
    """How many alternatives are derived; no more are counted than MAX_WORK."""
    return sum(1 for _ in islice(_derivations(node), MAX_WORK + 1))


def _derivations(node: Regex) -> Iterator[None]:
    match node:
        case Alt() | And():
            for item in node.items:
                yield from _derivations(item)
        case Not() | Repeat():
            yield from _derivations(node.node)
        case Cat():
            yield from (None for _ in takewhile(lambda item: item.is_nullable, sequence(node)))
            yield None
        case _:
            yield None


def _reaches_end(node: Regex, *, max_steps: int, is_real: bool) -> bool | None:
    """Whether some text is matched: of real characters, or of such that belong to named classes
    in any combination. None: too many states."""
    seen = {node}
    waiting = [node]
    steps = 0
    while waiting:
        state = waiting.pop()
        if state.is_nullable:
            return True
        for letter in _letters(state) if is_real else _possible_letters(state):
            steps += num_alternatives(state)
            if steps > max_steps:
                return None
            following = _derived(state, letter)
            if following is not NOTHING and following not in seen:
                seen.add(following)
                waiting.append(following)
    return False


# Characters of the common general categories, tried where a named class decides.
SAMPLES = "aA0_é٣\u0301\u2003ª中€+($\u00ad\u2160\u0903\u20dd\u02b0\u2028\u0378"


def _letters(node: Regex) -> Iterable[_Letter]:
    """A letter for each way on; where named classes decide, perhaps not for all."""
    sets = list(_first_sets(node))
    samples = SAMPLES if any(map(characters.class_names, sets)) else ""
    return map(_Letter, (*_codes(sets), *map(ord, samples)))


def _possible_letters(node: Regex) -> Iterable[_Letter]:
    """A letter for each way on, as if any could be in any of the named classes."""
    sets = list(_first_sets(node))
    names = sorted({name for members in sets for name in characters.class_names(members)})
    for code in _codes(sets):
        for bits in range(1 << len(names)):
            chosen = frozenset(name for i, name in enumerate(names) if bits >> i & 1)
            yield _Letter(code, chosen.__contains__)


def _codes(sets: Iterable[CharSet]) -> list[int]:
    """The first character of each stretch that no set divides."""
    edges = sorted({0, characters.LAST_CODE + 1}.union(*map(characters.boundaries, sets)))
    first, last = characters.SURROGATES
    return [edge for edge in edges[:-1] if not first <= edge <= last]


def _first_sets(node: Regex) -> Iterable[CharSet]:
    """The sets that decide about the next character."""
    match node:
        case Chars():
            yield node.members
        case Text():
            yield characters.characters(node.text[:1])
        case Cat():
            for item in sequence(node):
                yield from _first_sets(item)
                if not item.is_nullable:
                    return
        case Alt() | And():
            for item in node.items:
                yield from _first_sets(item)
        case Repeat() | Not():
            yield from _first_sets(node.node)


def _names(node: Regex) -> bool:
    """Whether a named class occurs anywhere."""
    match node:
        case Chars():
            return bool(characters.class_names(node.members))
        case Text():
            return False
        case Cat():
            return any(map(_names, sequence(node)))
        case Alt() | And():
            return any(map(_names, node.items))
        case Repeat() | Not():
            return _names(node.node)


NOTHING: Regex = one_of(characters.NO_CHARACTERS)
EMPTY: Regex = literal("")
ANY_CHAR: Regex = one_of(characters.EVERY)
ANY_TEXT: Regex = repeat(ANY_CHAR, 0, None)
