"""A regular language as a terminal of llguidance's Lark dialect, or as a regex of Rust's crate.

Each text has exactly one spelling as a JSON string: escapes only where JSON demands them, short
where there is a short one, and never of a surrogate.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from grammar.schema.characters import (
    EVERY,
    LAST_CODE,
    NO_CHARACTERS,
    CharSet,
    Range,
    Ranges,
    contains,
    inverted_ranges,
    ranges,
    without,
)
from grammar.schema.regex import (
    ANY_TEXT,
    Alt,
    And,
    Cat,
    Chars,
    Not,
    Regex,
    Repeat,
    Text,
)
from grammar.schema.regex_nodes import sequence

SHORT_ESCAPES = {'"': '"', "\\": "\\", "\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r"}
ESCAPED = ranges([(0, 0x1F), (ord('"'), ord('"')), (ord("\\"), ord("\\"))])
HEX_DIGITS = "0123456789abcdef"
NO_CHARACTER_CLASS = r"[^\x00-\x{10ffff}]"


@lru_cache(maxsize=256)
def json_string(node: Regex) -> str:
    """A terminal for the JSON strings, quotes included, whose content is in the language."""
    return _terminal(node, _JSON, quote='"')


def plain_text(node: Regex) -> str:
    """A terminal for the texts themselves."""
    return _terminal(node, _PLAIN, quote="")


def rust_plain_text(node: Regex) -> str | None:
    """One Rust regex for the texts; None where the language has And or Not."""
    return _rust(node, _PLAIN).text if node.is_plain else None


@dataclass(frozen=True, slots=True)
class _Piece:
    """Part of a regex, and how loosely its parts hold together."""

    text: str
    binding: int


_ATOM, _SEQUENCE, _ALTERNATIVES = range(3)


@dataclass(frozen=True, slots=True)
class _Spelling:
    """How a character of a text is written, and a class of them."""

    character: Callable[[str], str]
    characters: Callable[[CharSet], _Piece]


def _rust(node: Regex, spelling: _Spelling) -> _Piece:
    match node:
        case Text():
            text = "".join(map(spelling.character, node.text))
            is_atom = len(node.text) == 1 and text == _regex_character(node.text)
            return _Piece(text, _ATOM if is_atom else _SEQUENCE)
        case Chars():
            return spelling.characters(node.members)
        case Cat():
            items = (_grouped(_rust(item, spelling), _ALTERNATIVES) for item in sequence(node))
            return _Piece("".join(items), _SEQUENCE)
        case Alt():
            return _Piece("|".join(_rust(i, spelling).text for i in node.items), _ALTERNATIVES)
        case Repeat():
            inner = _grouped(_rust(node.node, spelling), _SEQUENCE)
            return _Piece(inner + _quantifier(node.low, node.high), _SEQUENCE)
    raise AssertionError("And and Not have no Rust regex")


def _grouped(piece: _Piece, loosest: int) -> str:
    """In parentheses, if its binding is as loose as `loosest`."""
    return f"(?:{piece.text})" if piece.binding >= loosest else piece.text


def _quantifier(low: int, high: int | None) -> str:
    match low, high:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
    return f"{{{low},{'' if high is None else high}}}" if low != high else f"{{{low}}}"


def _terminal(node: Regex, spelling: _Spelling, *, quote: str) -> str:
    """Whatever needs no `&` and no `~` is one regex: that compiles fastest. Operands of these get
    the quotes, each its own: llguidance sees then that nearly every text goes on into the operand
    that is kept, which makes a mask some ten times cheaper than with quotes around the whole."""
    if isinstance(node, Alt | And | Not) and not node.is_plain:
        return _lark(node, spelling, quote=quote)
    quotes = [_Piece(quote, _ATOM)] if quote else []
    pieces: list[_Piece | str] = [*quotes, *_lark_items(node, spelling), *quotes]
    parts: list[str] = []
    for is_regex, run in groupby(pieces, lambda piece: isinstance(piece, _Piece)):
        if not is_regex:
            parts += [piece for piece in run if isinstance(piece, str)]
            continue
        group = [piece for piece in run if isinstance(piece, _Piece)]
        loosest = _ALTERNATIVES if len(group) > 1 else _ALTERNATIVES + 1
        regex = "".join(_grouped(piece, loosest) for piece in group)
        parts.append(f"/{regex}/" if regex else '""')
    return " ".join(parts)


def _lark_items(node: Regex, spelling: _Spelling) -> Iterable[_Piece | str]:
    """The sequence of the node: pieces of regex, and Lark expressions of one operand each."""
    for item in sequence(node):
        yield _rust(item, spelling) if item.is_plain else _lark(item, spelling, quote="")


def _lark(node: Regex, spelling: _Spelling, *, quote: str) -> str:
    match node:
        case Alt():
            plain = [item for item in node.items if item.is_plain]
            shared = [_regex_of_any(plain, spelling, quote=quote)] if plain else []
            others = [_terminal(i, spelling, quote=quote) for i in node.items if not i.is_plain]
            return f"({' | '.join([*shared, *others])})"
        case And():
            texts = [item for item in node.items if not isinstance(item, Not)]
            kept = _operands(texts or [ANY_TEXT], spelling, quote=quote)
            removed = [i.node for i in node.items if isinstance(i, Not)]
            return f"({' & '.join([*kept, *_negated(removed, spelling, quote=quote)])})"
        case Not():
            kept = _operands([ANY_TEXT], spelling, quote=quote)
            return f"({' & '.join(kept + _negated([node.node], spelling, quote=quote))})"
        case Repeat():
            inner = _terminal(node.node, spelling, quote="")
            return f"({inner}){_quantifier(node.low, node.high)}"
    raise AssertionError("a sequence is rendered item by item")


def _regex_of_any(items: list[Regex], spelling: _Spelling, *, quote: str) -> str:
    text = "|".join(_rust(item, spelling).text for item in items)
    return f"/{quote}(?:{text}){quote}/" if quote else f"/{text}/"


def _operands(items: Iterable[Regex], spelling: _Spelling, *, quote: str) -> list[str]:
    return [_operand(item, spelling, quote=quote) for item in items]


def _negated(items: Iterable[Regex], spelling: _Spelling, *, quote: str) -> list[str]:
    """Always beside an operand that is text: a complement has broken UTF-8 too."""
    return [f"~{_operand(item, spelling, quote=quote)}" for item in items]


def _operand(item: Regex, spelling: _Spelling, *, quote: str) -> str:
    text = _terminal(item, spelling, quote=quote)
    return text if item.is_plain else f"({text})"


@lru_cache(maxsize=1024)
def _regex_character(character: str) -> str:
    if character == "\\":
        return r"\\"
    is_safe = character.isalnum() or character in ' "_,:;<>=!@%'
    return character if is_safe and character.isprintable() else f"\\x{{{ord(character):x}}}"


@lru_cache(maxsize=1024)
def _json_character(character: str) -> str:
    if character in SHORT_ESCAPES:
        return rf"\\{_regex_character(SHORT_ESCAPES[character])}"
    if character < " ":
        return rf"\\u{ord(character):04x}"
    return _regex_character(character)


def _regex_class(members: CharSet) -> _Piece:
    return _Piece(_class(members), _ATOM)


@lru_cache(maxsize=1024)
def _json_class(members: CharSet) -> _Piece:
    """What is written as it is, then the short escapes, then the control characters."""
    raw = without(members, ESCAPED)
    escaped = [c for c in map(chr, _codes(ESCAPED)) if contains(members, ord(c))]
    parts = [_class(raw)] if raw != NO_CHARACTERS or not escaped else []
    short = "".join(_regex_character(SHORT_ESCAPES[c]) for c in escaped if c in SHORT_ESCAPES)
    parts += [rf"\\[{short}]"] if short else []
    long = [ord(character) for character in escaped if character not in SHORT_ESCAPES]
    parts += [
        rf"\\u00{high:x}[{''.join(HEX_DIGITS[code % 16] for code in codes)}]"
        for high, codes in groupby(long, lambda code: code // 16)
    ]
    return _Piece("|".join(parts), _ALTERNATIVES if len(parts) > 1 or short or long else _ATOM)


def _class(members: CharSet) -> str:
    if isinstance(members, Ranges):
        return _range_class(members)
    name = members.name
    parts = [
        rf"\{letter}{{{name}}}" if part == EVERY else rf"[\{letter}{{{name}}}&&{_class(part)}]"
        for letter, part in (("p", members.inside), ("P", members.outside))
        if part != NO_CHARACTERS
    ]
    return f"[{''.join(parts)}]" if len(parts) > 1 else parts[0]


def _range_class(members: Ranges) -> str:
    if not members.bounds:
        return NO_CHARACTER_CLASS
    if members == EVERY:
        return r"[\x00-\x{10ffff}]"
    if members.bounds[-1][1] == LAST_CODE:
        return f"[^{''.join(map(_range, _over_surrogates(inverted_ranges(members))))}]"
    return f"[{''.join(map(_range, members.bounds))}]"


def _over_surrogates(members: Ranges) -> Iterable[Range]:
    """Ranges that meet at the surrogates as one: Rust's regex-syntax, negating two that end and
    begin there, takes the characters on both sides for members."""
    merged: list[Range] = []
    for low, high in members.bounds:
        if merged and (merged[-1][1], low) == (0xD7FF, 0xE000):
            low = merged.pop()[0]
        merged.append((low, high))
    return merged


def _range(pair: Range) -> str:
    low, high = (_regex_character(chr(code)) for code in pair)
    return low if low == high else f"{low}-{high}"


def _codes(members: Ranges) -> Iterable[int]:
    return (code for low, high in members.bounds for code in range(low, high + 1))


_PLAIN = _Spelling(_regex_character, _regex_class)
_JSON = _Spelling(_json_character, _json_class)
