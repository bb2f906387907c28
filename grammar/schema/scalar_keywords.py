"""What a schema object says of types, numbers and strings."""

from typing import Any

from grammar.errors import UnsupportedPattern
from grammar.keyword_values import refused
from grammar.keywords import TYPES
from grammar.schema.formats import format_regex
from grammar.schema.json_text import exact_number
from grammar.schema.number_cells import ALL_NUMBERS, NumberCell
from grammar.schema.numbers import Bound
from grammar.schema.patterns import parse_pattern
from grammar.schema.regex import length_between
from grammar.schema.text_sets import TextSet
from grammar.schema.unwieldy import is_unwieldy
from grammar.schema_document import child
from grammar.spec import Gap

Schema = dict[str, Any]

DIVIDING_DOUBLES = "validators that divide doubles disagree on multiples of such a fraction"


def types_of(schema: Schema) -> frozenset[str]:
    """The names that `type` gives, all of them where it is not there."""
    value = schema.get("type", TYPES)
    return frozenset([value] if isinstance(value, str) else value)


def number_cell(schema: Schema, pointer: str) -> tuple[NumberCell | None, tuple[Gap, ...]]:
    """The numbers that the bounds and `multipleOf` leave; None where they leave none."""
    cell: NumberCell | None = ALL_NUMBERS
    gaps: tuple[Gap, ...] = ()
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if keyword in schema and cell is not None:
            bound = _bound(schema, keyword)
            cell = cell if bound is None else cell.intersect(bound)
    if "multipleOf" in schema and cell is not None:
        divisor = exact_number(schema["multipleOf"])
        cell = cell.intersect(NumberCell(multiple_of=divisor))
        if divisor.denominator & (divisor.denominator - 1):
            gaps = (Gap(child(pointer, "multipleOf"), "multipleOf", DIVIDING_DOUBLES),)
    return cell, gaps


def _bound(schema: Schema, keyword: str) -> NumberCell | None:
    """None for a boolean exclusive bound of draft 4, which changes what the plain bound means."""
    value = schema[keyword]
    if isinstance(value, bool):
        return None
    is_exclusive = keyword.startswith("exclusive")
    if not is_exclusive:
        is_exclusive = schema.get(f"exclusive{keyword[0].upper()}{keyword[1:]}") is True
    bound = Bound(exact_number(value), is_exclusive)
    return NumberCell(low=bound) if keyword.lower().endswith("minimum") else NumberCell(high=bound)


def text_set(schema: Schema, pointer: str) -> tuple[TextSet, tuple[Gap, ...]]:
    """The strings that length, pattern and format leave."""
    texts = TextSet.ALL
    gaps: tuple[Gap, ...] = ()
    if "minLength" in schema or "maxLength" in schema:
        low, high = count_range(schema, "minLength", "maxLength")
        texts = TextSet.exact(length_between(low, high))
    if "pattern" in schema:
        place = child(pointer, "pattern")
        found = pattern_set(schema["pattern"], place, "pattern")
        if is_unwieldy(found.narrow):
            gaps = (Gap(place, "pattern", "its automaton is too large to mask with"),)
        else:
            texts = texts.intersect(found)
    if "format" in schema:
        regex = format_regex(schema["format"])
        if regex is not None:
            texts = texts.intersect(TextSet.exact(regex))
    return texts, gaps


def pattern_set(pattern: str, place: str, keyword: str) -> TextSet:
    """The strings in which the pattern is found. Raises: UnsupportedConstraint."""
    try:
        narrow = parse_pattern(pattern, reading="narrow")
        wide = parse_pattern(pattern, reading="wide")
    except UnsupportedPattern as error:
        raise refused(str(error), place, keyword) from error
    return TextSet(narrow, wide)


def count_range(schema: Schema, low: str, high: str, *, least: int = 0) -> tuple[int, int | None]:
    """The values of a pair of counting keywords; `least` where there is no lower one."""
    return int(schema.get(low, least)), int(schema[high]) if high in schema else None
