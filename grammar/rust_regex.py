"""Regexes of Rust's crate, piece by piece, for who makes automata of them: how large they become
when their counts are written out, and the same without the last private characters.
"""

import re

# A class of characters beyond ASCII is about so many states of an automaton over bytes.
WIDE = 10
PIECE = re.compile(
    r"""\\(?:[pPxuU](?:\{[^}]*\}|[0-9A-Fa-f]{2})|.)  # an escape
      | \[(?:\\.|\[[^\]]*\]|[^\]\\])*\]               # a class
      | \{(?P<low>\d+)(?P<comma>,(?P<high>\d*))?\}
      | \((?:\?(?:P?<[^>]*>|[a-z-]*:))?
      | .""",
    re.VERBOSE | re.DOTALL,
)
# Without the private characters from U+100000, the only ones that UTF-8 begins with the byte F4.
ASSIGNED = r"[\x{0}-\x{fffff}]"


def without_last_plane(regex: str) -> str:
    """The regex with each class and dot kept from matching a character from U+100000."""
    return "".join(_narrowed(piece.group()) for piece in PIECE.finditer(regex))


def _narrowed(piece: str) -> str:
    if piece == ".":
        return rf"[[^\n]&&{ASSIGNED}]"
    if piece.startswith(("[", r"\p", r"\P", r"\D", r"\W", r"\S")):
        return f"[{piece}&&{ASSIGNED}]"
    return piece


def written_out(regex: str) -> int:
    """Positions of the regex, those beyond ASCII counted as several."""
    totals = [0]  # of each open group, innermost last
    last = 0  # of what a count would apply to
    for piece in PIECE.finditer(regex):
        text = piece.group()
        if piece["low"] is not None:
            count = int(piece["high"] or piece["low"])
            totals[-1] += last * (count - 1)
        elif text.startswith("("):
            totals.append(0)
        elif text == ")" and len(totals) > 1:
            last = totals.pop()
            totals[-1] += last
        elif text not in ("|", "*", "+", "?"):
            last = _weight(text)
            totals[-1] += last
    return sum(totals)


def _weight(text: str) -> int:
    is_wide = text.startswith(("[^", ".", r"\p", r"\P", r"\D", r"\W", r"\S", r"\s")) or (
        r"\x{" in text or r"\p" in text or not text.isascii()
    )
    return WIDE if is_wide and not re.fullmatch(r"\\x\{[0-7]?[0-9a-f]\}", text) else 1
