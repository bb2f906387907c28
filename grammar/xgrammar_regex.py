"""Which patterns xgrammar reads as the standard does.

It matches a string's pattern against the JSON text, without escaping: a pattern that could
match a quote, a backslash or a control character would produce broken JSON. It also ignores
anchors that do not stand at the ends. A pattern without anchors it matches as a whole, which
allows less than the standard, so that is sound.
"""

import re

from grammar.keyword_values import refused
from grammar.literals import check_encodable, unsupported_constructs

# A piece of a pattern that cannot match anything that JSON escapes, longest first.
SAFE_PIECE = re.compile(
    r"""
    \\[dwS]                             # classes that mean the same to all validators
  | \\[-^$.*+?()\[\]{}|/_@#%&=:;,!~<>]  # an escaped character
  | \(\?: | [()|]
  | [*+?]\?? | \{\d+(?:,\d*)?\}\??
  | \[\^?-?(?:\\[-^$.*+?()\[\]{}|/]|[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]
            |[A-Za-z0-9_@#%&=:;,!~<>'. $*+?(){}|/])++-?\]
  | \[-?(?:\\[dw]|[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]|[A-Za-z0-9_. /])++-?\]
  | [A-Za-z0-9_@#%&=:;,!~<>'. /-]       # a character; the dot leaves out what JSON escapes
  | [^\x00-\x7f]
    """,
    re.VERBOSE,
)
ANCHOR = re.compile(r"[\^$]|\\[bBAzZ]")


def check_string_pattern(pattern: str, *, pointer: str) -> None:
    """Raises: UnsupportedConstraint for a pattern that is not known to be enforced."""
    check_encodable(pattern, "the pattern", pointer=pointer)
    for construct, name in unsupported_constructs(pattern):
        raise refused(f"{name} is not supported: {construct!r}", pointer, "pattern")
    body = _without_end_anchors(pattern)
    position = 0
    while position < len(body):
        piece = SAFE_PIECE.match(body, position)
        if piece is None:
            raise refused(
                f"xgrammar cannot be trusted with {body[position : position + 20]!r} in a pattern",
                pointer,
                "pattern",
            )
        position = piece.end()


def check_anchors(pattern: str) -> str | None:
    """The pattern from the first anchor on that stands inside it; None where there is none."""
    body = _without_end_anchors(pattern)
    in_class = False
    position = 0
    while position < len(body):
        if not in_class and ANCHOR.match(body, position):
            return body[position:]
        if body[position] == "\\":
            position += 2
            continue
        in_class = body[position] == "[" or (in_class and body[position] != "]")
        position += 1
    return None


def _without_end_anchors(pattern: str) -> str:
    body = pattern.removeprefix("^")
    num_backslashes = len(body) - 1 - len(body[:-1].rstrip("\\"))
    is_anchored = body.endswith("$") and num_backslashes % 2 == 0
    return body[:-1] if is_anchored else body
