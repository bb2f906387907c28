"""Escapes and character classes of ECMA-262 patterns, under the two readings of `Reading`."""

import re
import string

from grammar.errors import UnsupportedPattern
from grammar.schema.characters import (
    EVERY,
    NO_CHARACTERS,
    CharSet,
    characters,
    inverted,
    joined,
    named,
    ranges,
)
from grammar.schema.pattern_parts import Reading, opposite

ASCII_DIGITS = ranges([(0x30, 0x39)])
ASCII_WORD = characters(string.ascii_letters + string.digits + "_")
ALL_LINE_ENDS = characters("\n\r\u2028\u2029")
# White space of ECMA-262 and of Unicode; \x1c to \x1f and \x85 are none in ECMA-262, \ufeff is.
CERTAIN_SPACE = ranges(
    [(0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)]
    + [(0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]
)
POSSIBLE_SPACE = joined(CERTAIN_SPACE, ranges([(0x1C, 0x1F), (0x85, 0x85), (0xFEFF, 0xFEFF)]))
POSSIBLE_WORD = joined(joined(named("L"), named("N")), joined(named("M"), ASCII_WORD))
CLASS_ESCAPES: dict[str, dict[Reading, CharSet]] = {
    "d": {"narrow": ASCII_DIGITS, "wide": named("Nd")},
    "w": {"narrow": ASCII_WORD, "wide": POSSIBLE_WORD},
    "s": {"narrow": CERTAIN_SPACE, "wide": POSSIBLE_SPACE},
}
CONTROL_ESCAPES = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r"}
CATEGORIES = {
    "Letter": "L",
    "Uppercase_Letter": "Lu",
    "Lowercase_Letter": "Ll",
    "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm",
    "Other_Letter": "Lo",
    "Mark": "M",
    "Nonspacing_Mark": "Mn",
    "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me",
    "Number": "N",
    "Decimal_Number": "Nd",
    "Letter_Number": "Nl",
    "Other_Number": "No",
    "Punctuation": "P",
    "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd",
    "Open_Punctuation": "Ps",
    "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf",
    "Other_Punctuation": "Po",
    "Symbol": "S",
    "Math_Symbol": "Sm",
    "Currency_Symbol": "Sc",
    "Modifier_Symbol": "Sk",
    "Other_Symbol": "So",
    "Separator": "Z",
    "Space_Separator": "Zs",
    "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp",
    "Control": "Cc",
    "Format": "Cf",
    "Private_Use": "Co",
}
CATEGORY_CODES = frozenset(CATEGORIES.values())
CATEGORY_PREFIX = re.compile(r"(?:gc|General_Category)=")
CODE_ESCAPE = re.compile(
    r"x(?P<x>[0-9A-Fa-f]{2})|u\{(?P<braced>[0-9A-Fa-f]{1,8})\}"
    r"|u(?P<high>[Dd][89ABab][0-9A-Fa-f]{2})\\u(?P<low>[Dd][C-Fc-f][0-9A-Fa-f]{2})"
    r"|u(?P<u>[0-9A-Fa-f]{4})|c(?P<control>[A-Za-z])"
)
PROPERTY_ESCAPE = re.compile(r"[pP]\{([A-Za-z_=]{1,80})\}")


def any_but_line_ends(reading: Reading) -> CharSet:
    """What `.` matches."""
    return inverted(ALL_LINE_ENDS if reading == "narrow" else characters("\n"))


def escape(source: str, position: int, reading: Reading) -> tuple[CharSet | str, int]:
    """The class or the character of the escape whose backslash stands before `position`, and
    the place behind it. Raises: UnsupportedPattern."""
    letter = source[position : position + 1]
    if not letter:
        raise UnsupportedPattern("the pattern ends in a backslash")
    if letter.lower() in CLASS_ESCAPES:
        return _class_escape(letter, reading), position + 1
    if letter in CONTROL_ESCAPES:
        return CONTROL_ESCAPES[letter], position + 1
    if letter in "pP":
        return _property(source, position)
    if letter in "xuc":
        return _code(source, position)
    if letter == "0" and not source[position + 1 : position + 2].isdecimal():
        return "\0", position + 1
    if letter in string.digits or letter in "kg":
        raise UnsupportedPattern(f"a backreference is not supported: '\\{letter}'")
    if letter in string.ascii_letters:
        raise UnsupportedPattern(f"'\\{letter}' has no meaning in an ECMA-262 pattern")
    return letter, position + 1


def character_class(source: str, position: int, reading: Reading) -> tuple[CharSet, int]:
    """The class whose `[` stands before `position`, and the place behind its `]`."""
    is_negated = source.startswith("^", position)
    position += is_negated
    inner = opposite(reading) if is_negated else reading
    pairs: list[tuple[int, int]] = []
    classes: list[CharSet] = []
    while not source.startswith("]", position):
        low, position = _class_atom(source, position, inner)
        high: CharSet | str = low
        is_range = source.startswith("-", position) and not source.startswith("]", position + 1)
        if is_range and isinstance(low, str):
            high, position = _class_atom(source, position + 1, inner)
        if not isinstance(low, str):
            classes.append(low)
        elif isinstance(high, str) and low <= high:
            pairs.append((ord(low), ord(high)))
        else:
            raise UnsupportedPattern("a character class has a range that is not from low to high")
    members: CharSet = ranges(pairs)
    for part in classes:
        members = joined(members, part)
    return inverted(members) if is_negated else members, position + 1


def _class_atom(source: str, position: int, reading: Reading) -> tuple[CharSet | str, int]:
    if position >= len(source):
        raise UnsupportedPattern("a character class of the pattern is not closed")
    if source[position] != "\\":
        return source[position], position + 1
    if source.startswith("b", position + 1):
        return "\b", position + 2
    return escape(source, position + 1, reading)


def _class_escape(letter: str, reading: Reading) -> CharSet:
    if letter.islower():
        return CLASS_ESCAPES[letter][reading]
    return inverted(CLASS_ESCAPES[letter.lower()][opposite(reading)])


def _code(source: str, position: int) -> tuple[str, int]:
    found = CODE_ESCAPE.match(source, position)
    if found is None:
        raise UnsupportedPattern(f"an escape is not complete: '\\{source[position]}'")
    if found["control"]:
        return chr(ord(found["control"]) % 32), found.end()
    if found["high"]:
        pair = (int(found["high"], 16) - 0xD800) << 10 | int(found["low"], 16) - 0xDC00
        return chr(0x10000 + pair), found.end()
    code = int(found["x"] or found["braced"] or found["u"], 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise UnsupportedPattern("a lone surrogate or a code beyond Unicode is no character")
    return chr(code), found.end()


def _property(source: str, position: int) -> tuple[CharSet, int]:
    found = PROPERTY_ESCAPE.match(source, position)
    name = CATEGORY_PREFIX.sub("", found[1]) if found else ""
    code = CATEGORIES.get(name, name)
    members: CharSet = NO_CHARACTERS
    if code in CATEGORY_CODES:
        members = named(code)
    elif code in ("LC", "Cased_Letter"):
        members = joined(named("Lu"), joined(named("Ll"), named("Lt")))
    elif code == "Any":
        members = EVERY
    elif code == "ASCII":
        members = ranges([(0, 0x7F)])
    if found is None or members == NO_CHARACTERS:
        raise UnsupportedPattern(f"the Unicode property {name!r} is not supported in a pattern")
    return inverted(members) if source[position] == "P" else members, found.end()
