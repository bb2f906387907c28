"""Rules for numbers: one regex where that can say it, llguidance's own remainder automaton for the
multiples that no short regex describes."""

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from grammar.schema.json_text import number_text, plain_number
from grammar.schema.number_cells import NumberCell
from grammar.schema.numbers import (
    Bound,
    multiple_of_regex,
    not_multiple_of_regex,
    number_regex,
)
from grammar.spec import Gap

if TYPE_CHECKING:
    from grammar.schema.lark_emitter import LarkEmitter

# The largest double below 2**63: llguidance computes bounds in 64 bits.
MAX_BOUND = 2**63 - 1024
# Its automaton has a state a remainder: masks take 3 ms at 10,000, and fail at 100,000.
MAX_COEFFICIENT = 10_000
EXACT_DIGITS = 15
COMPACT = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}

NOT_MULTIPLE = Gap("", "not", "the mask cannot exclude the multiples of such a number")
LARGE_DIVISOR = Gap("", "multipleOf", "the automaton of its remainders would be too large")
ROUNDED_BOUND = Gap("", "multipleOf", "a bound beside multipleOf is not a double")


def number_alternatives(cells: tuple[NumberCell, ...], emitter: "LarkEmitter") -> Iterator[str]:
    """Items of a rule whose union are the cells."""
    plain = []
    for cell in cells:
        if cell.only_value is not None:  # one spelling, so that it is forced
            text = number_text(cell.only_value)
            plain.append(text.replace(".", r"\.").replace("+", r"\+"))
        elif cell.multiple_of is None and not cell.not_multiples_of:
            regex = number_regex(cell.low, cell.high, integer=cell.is_whole)
            if regex is not None:
                plain.append(regex)
        else:
            yield from _divided(cell, emitter)
    if plain:
        yield emitter.rules.terminal(f"/{'|'.join(plain)}/")


def _divided(cell: NumberCell, emitter: "LarkEmitter") -> Iterator[str]:
    base = number_regex(cell.low, cell.high, integer=cell.is_whole)
    if base is None:
        return
    parts = [base]
    for divisor in sorted(cell.not_multiples_of):
        regex = not_multiple_of_regex(divisor)
        if regex is None:
            emitter.note(NOT_MULTIPLE)
        else:
            parts.append(regex)
    if cell.multiple_of is not None:
        regex = multiple_of_regex(cell.multiple_of)
        if regex is None and _coefficient(cell.multiple_of) > MAX_COEFFICIENT:
            emitter.note(LARGE_DIVISOR)
        elif regex is None:
            if len(parts) > 1 or cell.is_whole is False:
                emitter.note(NOT_MULTIPLE)
            yield f"%json {json.dumps(_json_schema(cell, cell.multiple_of, emitter))}"
            return
        else:
            parts.append(regex)
    yield emitter.rules.terminal(" & ".join(f"/{part}/" for part in parts))


def _coefficient(divisor: Fraction) -> int:
    """The digits of the divisor as a whole number, as llguidance takes it."""
    return int(plain_number(divisor).replace(".", ""))


def _json_schema(cell: NumberCell, divisor: Fraction, emitter: "LarkEmitter") -> dict[str, object]:
    """The schema that llguidance turns into its automaton, bounded so that no number is endless."""
    most = Fraction(MAX_BOUND) if cell.is_whole else _largest_exact(divisor)
    schema: dict[str, object] = {
        "x-guidance": COMPACT,
        "type": "integer" if cell.is_whole else "number",
        "multipleOf": _number(divisor),
        "minimum": _number(-most),
        "maximum": _number(most),
    }
    for bound, keyword in ((cell.low, "minimum"), (cell.high, "maximum")):
        if bound is not None and abs(bound.value) < most:
            del schema[keyword]
            schema[_keyword(bound, keyword)] = _bound(bound, emitter)
    return schema


def _largest_exact(divisor: Fraction) -> Fraction:
    """Up to here a multiple has 15 digits, and a double keeps it apart from its neighbours."""
    num_places = len(plain_number(divisor).partition(".")[2])
    return Fraction(10 ** (EXACT_DIGITS - num_places))


def _keyword(bound: Bound, keyword: str) -> str:
    return f"exclusive{keyword.capitalize()}" if bound.is_exclusive else keyword


def _bound(bound: Bound, emitter: "LarkEmitter") -> int | float:
    number = _number(bound.value)
    if Fraction(number) != bound.value:
        emitter.note(ROUNDED_BOUND)
    return number


def _number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)
