"""A `pattern` or regex in the syntax of Rust's regex crate, with the meaning ECMA-262 gives it.

JSON Schema patterns are ECMA-262; llguidance reads them as Rust. The two differ in places where
both accept the text: classes within classes, set operators, `.`, `\\<`. Those are rewritten.
Validators differ on the class escapes (ASCII in ECMA-262, Unicode in Python), so each is
rewritten to what matches under both readings.
"""

from grammar.errors import UnsupportedConstraint
from grammar.literals import check_encodable, unsupported_constructs

LINE_ENDS = r"\n\r\x{2028}\x{2029}"
SET_OPERATORS = frozenset("&~[")
# Members of a class escape by every reading, and by any reading; both as items of a class.
CERTAIN = {
    "d": "0-9",
    "w": "A-Za-z0-9_",
    "s": r"\t\n\x0b\x0c\r\x20\x{a0}\x{1680}\x{2000}-\x{200a}"
    r"\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}",
}
POSSIBLE = {"d": r"\p{Nd}", "w": r"\p{L}\p{N}\p{M}_", "s": r"\s\x1c-\x1f\x{feff}"}
PLAIN_GROUPS = ("(?:", "(?<", "(?P<")


def rust_pattern(pattern: str, *, pointer: str) -> str:
    """Raises: UnsupportedConstraint for what automata or both dialects cannot express."""
    check_encodable(pattern, "the pattern", pointer=pointer)
    for construct, name in unsupported_constructs(pattern):
        raise _refused(f"{name} is not supported: {construct!r}", pointer)
    translated: list[str] = []
    position = 0
    while position < len(pattern):
        piece, length = _translate_at(pattern, position, pointer=pointer)
        translated.append(piece)
        position += length
    return "".join(translated)


def _translate_at(pattern: str, position: int, *, pointer: str) -> tuple[str, int]:
    """What the construct at `position` becomes, and how many characters it is long."""
    character = pattern[position]
    if character == "\\":
        return _escape(pattern[position : position + 2], pointer), 2
    if character == "[":
        return _character_class(pattern, position, pointer=pointer)
    if character == ".":
        return f"[^{LINE_ENDS}]", 1
    if character == "(" and pattern.startswith("(?", position):
        if not pattern.startswith(PLAIN_GROUPS, position):
            raise _refused("flags within a pattern are not supported", pointer)
    if character == "{" and pattern.startswith("{,", position):
        raise _refused("write {0,n} instead of {,n} in a pattern", pointer)
    return character, 1


def _character_class(pattern: str, start: int, *, pointer: str) -> tuple[str, int]:
    """[...] with everything escaped that Rust would take for a nested class or an operator."""
    position = start + 1
    is_negated = pattern.startswith("^", position)
    translated = "[^" if is_negated else "["
    position += is_negated
    if pattern.startswith("]", position):
        raise _refused("an empty character class is not supported in a pattern", pointer)
    while position < len(pattern):
        character = pattern[position]
        if character == "]":
            return translated + "]", position + 1 - start
        if pattern.startswith("--", position):
            raise _refused("'--' in a character class is ambiguous", pointer)
        if character == "\\":
            escape = pattern[position : position + 2]
            translated += _escape(escape, pointer, is_negated=is_negated)
            position += 2
            continue
        translated += f"\\{character}" if character in SET_OPERATORS else character
        position += 1
    raise _refused("a character class of the pattern is not closed", pointer)


def _escape(text: str, pointer: str, *, is_negated: bool = False) -> str:
    """The escape; within a negated class it has to exclude what any reading takes for it."""
    if len(text) < 2:
        raise _refused("the pattern ends in a backslash", pointer)
    letter = text[1]
    if letter in CERTAIN:
        return f"[{(POSSIBLE if is_negated else CERTAIN)[letter]}]"
    if letter.lower() in CERTAIN:
        return f"[^{(CERTAIN if is_negated else POSSIBLE)[letter.lower()]}]"
    if letter in "<>":  # word boundaries in Rust, plain characters in ECMA-262
        return letter
    if letter in "AzZBQEGKRXhHN":
        raise _refused(f"{text!r} has no meaning in an ECMA-262 pattern", pointer)
    return text


def _refused(reason: str, pointer: str) -> UnsupportedConstraint:
    return UnsupportedConstraint(reason, pointer=pointer, keyword="pattern")
