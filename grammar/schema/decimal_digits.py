"""Regexes of digit strings by their value: whole numbers in a range, fractions in a range.

Bounds are inclusive. Alternatives come as lists of Rust regexes, to be joined by who uses them.
"""

from itertools import groupby

MAX_DIGITS = 64
# Below so many digits of a fraction the limit is kept exactly, at the price of more alternatives.
MAX_EXACT_ROOM = 16


def alternatives(patterns: list[str]) -> str:
    return patterns[0] if len(patterns) == 1 else f"(?:{'|'.join(patterns)})"


def whole_numbers(low: int, high: int | None) -> list[str]:
    """Of `low` >= 0 to `high`, without leading zeros, of at most MAX_DIGITS digits."""
    top = 10**MAX_DIGITS - 1
    high = top if high is None else min(high, top)
    found: list[str] = []
    while low <= high:
        digits = str(low)
        end = min(high, 10 ** len(digits) - 1)
        if int(digits) == 10 ** (len(digits) - 1) and len(digits) > 1 and end < high:
            # All of these lengths at once, up to the last that is complete.
            last = len(str(high + 1)) - 1
            found.append(f"[1-9][0-9]{_times(len(digits) - 1, last - 1)}")
            end = 10**last - 1
        else:
            found += _same_length(digits, str(end))
        low = end + 1
    return found


def fractions_from(low: str, room: int) -> tuple[list[str], bool]:
    """Digits behind the point of at least 0.`low`, and whether none at all will do."""
    if not low:
        return [f"[0-9]{_times(1, room)}"], True
    found = [
        f"{before}{_digits(digit + 1, 9)}{_any(rest)}"
        for before, digit, rest in _runs(low[:room], room)
        if digit < 9
    ]
    if len(low) <= room:
        found.append(low + _any(room - len(low)))
    return found, False


def fractions_to(high: str, room: int) -> tuple[list[str], bool]:
    """Digits behind the point of at most 0.`high`, and whether none at all will do: always."""
    found = [
        f"{before}{_digits(0, digit - 1)}{_any(rest)}"
        for before, digit, rest in _runs(high[:room], room)
        if digit > 0
    ]
    found += [high[:length] for length in range(1, min(len(high), room + 1))]
    if len(high) < room:
        found.append(high + f"0{_times(0 if high else 1, room - len(high))}")
    elif len(high) == room:
        found.append(high)
    return found, True


def fractions_between(low: str, high: str, room: int) -> tuple[list[str], bool]:
    """Both; 0.`low` is not above 0.`high`. Neither has zeros at its end."""
    width = max(len(low), len(high))
    low_digits, high_digits = low.ljust(width, "0"), high.ljust(width, "0")
    num_shared = next((i for i in range(width) if low_digits[i] != high_digits[i]), width)
    shared = low_digits[:num_shared]
    found = [shared[:length] for length in range(max(len(low), 1), min(num_shared, room) + 1)]
    if num_shared == width:
        if width < room:
            found.append(f"{shared}0{_times(1, room - width)}")
        return found, not low
    if num_shared >= room:
        return found, not low
    rest = room - num_shared - 1
    at_low, at_high = int(low_digits[num_shared]), int(high_digits[num_shared])
    above, is_bare = fractions_from(low[num_shared + 1 :], rest)
    found += [f"{shared}{at_low}{more}" for more in (above if rest else [])]
    found += [f"{shared}{at_low}"] if is_bare else []
    if at_low + 1 < at_high:
        found.append(shared + _digits(at_low + 1, at_high - 1) + _any(rest))
    below, _ = fractions_to(high[num_shared + 1 :], rest)
    found += [f"{shared}{at_high}{more}" for more in ([*below, ""] if rest else [""])]
    return found, not low


def _same_length(low: str, high: str) -> list[str]:
    """Digit strings from `low` to `high`, which are as long."""
    if low == high:
        return [low]
    at = next(i for i in range(len(low)) if low[i] != high[i])
    shared, rest = low[:at], len(low) - at - 1
    first, last = int(low[at]), int(high[at])
    found: list[str] = []
    if low[at + 1 :].strip("0"):
        found += [shared + low[at] + more for more in _not_below(low[at + 1 :])]
        first += 1
    ends: list[str] = []
    if high[at + 1 :].strip("9"):
        ends = [shared + high[at] + more for more in _not_above(high[at + 1 :])]
        last -= 1
    if first <= last:
        found.append(
            f"{shared}{_digits(first, last)}{f'[0-9]{_times(rest, rest)}' if rest else ''}"
        )
    return found + ends


def _not_below(digits: str) -> list[str]:
    """Strings as long, of at least this value."""
    larger = [
        f"{digits[:i]}{_digits(int(digits[i]) + 1, 9)}{_exactly(len(digits) - i - 1)}"
        for i in range(len(digits))
        if digits[i] != "9"
    ]
    return [*larger, digits]


def _not_above(digits: str) -> list[str]:
    smaller = [
        f"{digits[:i]}{_digits(0, int(digits[i]) - 1)}{_exactly(len(digits) - i - 1)}"
        for i in range(len(digits))
        if digits[i] != "0"
    ]
    return [*smaller, digits]


def _runs(digits: str, room: int) -> list[tuple[str, int, int]]:
    """(regex of what stands before, digit, digits that may follow) for each digit; equal digits
    in a row together, where a few digits more than there is room for do no harm."""
    found: list[tuple[str, int, int]] = []
    start = 0
    for digit, group in groupby(digits):
        length = len(list(group))
        if room <= MAX_EXACT_ROOM or length == 1:
            places = range(start, start + length)
            found += [(digits[:place], int(digit), room - place - 1) for place in places]
        else:
            before = f"{digits[:start]}{digit}{{0,{length - 1}}}"
            found.append((before, int(digit), room - start - 1))
        start += length
    return found


def _digits(first: int, last: int) -> str:
    return str(first) if first == last else f"[{first}-{last}]"


def _any(most: int) -> str:
    return f"[0-9]{_times(0, most)}" if most > 0 else ""


def _exactly(count: int) -> str:
    return f"[0-9]{_times(count, count)}" if count else ""


def _times(low: int, high: int) -> str:
    if low == high:
        return "" if low == 1 else f"{{{low}}}"
    return f"{{{low},{high}}}"
