"""Texts of servers, files and prompts as a terminal may show them: nothing in them moves the cursor
or sets a colour. Widths are in cells.
"""

import unicodedata


def harmless(text: str, *, is_plain: bool) -> str:
    """On one line, with escapes for all that is no visible character."""
    shown = []
    for character in text:
        if character == "\n":
            shown.append("\\n")
        elif character == " " or (character.isprintable() and not unicodedata.combining(character)):
            shown.append(character)
        elif unicodedata.combining(character) and not is_plain:
            shown.append(character)
        else:
            shown.append(repr(character)[1:-1])
    joined = "".join(shown)
    return joined.encode("ascii", "backslashreplace").decode() if is_plain else joined


def cells(text: str) -> int:
    """How wide a terminal shows it."""
    return sum(map(_cells_of, text))


def cut(text: str, width: int, *, is_plain: bool = False) -> str:
    """Its beginning, with a mark where something is left out."""
    if cells(text) <= width:
        return text
    mark = "..." if is_plain else "…"
    room = max(width - cells(mark), 0)
    taken = []
    for character in text:
        room -= _cells_of(character)
        if room < 0:
            break
        taken.append(character)
    return "".join(taken) + mark


def last_cells(text: str, width: int) -> str:
    """Its end."""
    start = len(text)
    while start > 0 and width >= _cells_of(text[start - 1]):
        start -= 1
        width -= _cells_of(text[start])
    return text[start:]


def _cells_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
