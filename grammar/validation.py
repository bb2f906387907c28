"""Whether a finished text is what a JSON Schema asks for, by the judgement of `jsonschema`.

The last check of every answer, and the only one of what a mask cannot enforce. Knows no tokens.
Nothing is fetched, and no client's pattern is run by a backtracking matcher.
"""

import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from grammar.answer_places import (
    Place,
    Problem,
    anchors,
    place_at,
    repeated_item,
    scan,
)
from grammar.errors import GrammarError
from grammar.keyword_places import nameless_pointer
from grammar.schema.dialect import dialect_of
from grammar.schema.formats import format_regex
from grammar.schema.patterns import parse_pattern
from grammar.schema.regex import Regex, matches
from grammar.schema_document import parse_schema

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

MAX_MESSAGE_CHARS = 300
# Of all that is wrong with a text the first in the text is told; so many are looked at.
MAX_ERRORS = 16
MAX_DIGITS = 4000

Judge = Callable[[Any, Any, Any, Any], Iterator["ValidationError"]]


# References that the validation of one text follows at most: about a second.
MAX_REFERENCES = 20_000


class _Budget(threading.local):
    """What the validation that runs in this thread may still follow."""

    num_references = 0


_budget = _Budget()


class AnswerValidator:
    """Of one schema. Thread-safe. Made in the time that the schema takes to be read; the library
    is loaded with the first one."""

    def __init__(self, schema_text: str) -> None:
        """Raises: UnsupportedConstraint for what is no schema."""
        from jsonschema_specifications import REGISTRY

        schema = parse_schema(schema_text)
        dialect = dialect_of(schema)
        has_both = "patternProperties" in schema_text and "unevaluatedProperties" in schema_text
        make = _validator_class(
            dialect.draft, is_lenient=not dialect.is_declared, counts_evaluated=has_both
        )
        self._validator = make(schema, registry=REGISTRY)

    def problem(self, text: str) -> Problem | None:
        """None for a text that the schema allows. Of a key that comes twice the last value counts,
        as in nearly all parsers: no mask can keep an open object from repeating a key.

        Raises: GrammarError where the schema gives no answer (a reference to nowhere, a text
        nested too deeply, references that multiply beyond a second's work).
        """
        _budget.num_references = MAX_REFERENCES
        try:
            value = json.loads(
                text, parse_constant=_no_constant, parse_float=_finite, parse_int=_integer
            )
            errors = list(islice(self._validator.iter_errors(value), MAX_ERRORS))
        except ValueError as error:
            return Problem(f"it is not valid JSON: {error}"[:MAX_MESSAGE_CHARS])
        except RecursionError as error:
            raise GrammarError("the text is nested too deeply to be validated") from error
        except GrammarError:
            raise
        except Exception as error:  # of the library, for references that lead nowhere
            raise GrammarError(f"the text cannot be validated: {error}") from error
        return _first_problem(errors, scan(text)) if errors else None


def _first_problem(errors: Sequence["ValidationError"], root: Place) -> Problem:
    """That of the value which ends first: whatever follows it is thrown away with it."""
    places = [_place_of(error, root) for error in errors]
    index = min(range(len(errors)), key=lambda index: places[index][1])
    error, (path, end) = errors[index], places[index]
    keyword = str(error.validator)
    return Problem(
        message=error.message[:MAX_MESSAGE_CHARS],
        path=path,
        keyword=keyword,
        anchors=anchors(root, end, keyword=keyword),
        pointer=nameless_pointer(error.absolute_schema_path),
    )


def _place_of(error: "ValidationError", root: Place) -> tuple[tuple[str | int, ...], int]:
    """The path of what is wrong, and where it ends."""
    path = tuple(error.absolute_path)
    place = place_at(root, path)
    if "propertyNames" in error.absolute_schema_path and isinstance(error.instance, str):
        named = place.member(error.instance)
        if named is not None:
            return path, named.key_end
    if error.validator == "uniqueItems" and isinstance(error.instance, list):
        item = repeated_item(place, error.instance)
        return path if item is place else (*path, item.key), item.end
    return path, place.end


@cache
def _validator_class(draft: int, *, is_lenient: bool, counts_evaluated: bool) -> Any:
    """The library's validator for the draft, with judges of our own where its own would run
    Python's `re`, know other formats than we enforce or round. `is_lenient`: forms of older drafts
    count as well."""
    import attrs
    import jsonschema
    from jsonschema.validators import extend

    by_draft: dict[int, Any] = {
        4: jsonschema.Draft4Validator,
        6: jsonschema.Draft6Validator,
        7: jsonschema.Draft7Validator,
        2019: jsonschema.Draft201909Validator,
        2020: jsonschema.Draft202012Validator,
    }
    base = by_draft[draft]
    judges: dict[str, Judge] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties(base.VALIDATORS["additionalProperties"]),
        "format": _format,
        "multipleOf": _multiple_of(base.VALIDATORS["multipleOf"]),
    }
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        if keyword in base.VALIDATORS:
            judges[keyword] = _counted(base.VALIDATORS[keyword])
    if counts_evaluated:
        judges["unevaluatedProperties"] = _unevaluated_properties
    if is_lenient:
        judges |= _older_forms(by_draft, base)
    made: Any = extend(base, judges)  # type: ignore[no-untyped-call]
    # The library's would choose a class by the `$schema` of a part, and lose ours.
    made.evolve = lambda self, **changes: attrs.evolve(self, **changes)
    return made


def _counted(library: Judge) -> Judge:
    """The library's, as often as one text may ask: where each of two references leads to two more,
    and so on, the work doubles with each."""

    def judge(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        _budget.num_references -= 1
        if _budget.num_references < 0:
            raise GrammarError(f"it takes more than {MAX_REFERENCES} references to validate")
        yield from library(validator, value, instance, schema)

    return judge


def _older_forms(by_draft: dict[int, Any], base: Any) -> dict[str, Judge]:
    """What drafts 4 to 2019-09 have that 2020-12 reads in another way or not at all."""
    seven, four = by_draft[7].VALIDATORS, by_draft[4].VALIDATORS

    def of_lists(newer: Judge, older: Judge) -> Judge:
        def judge(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
            chosen = older if isinstance(value, list) else newer
            return chosen(validator, value, instance, schema)

        return judge

    def of_booleans(newer: Judge, older: Judge, partner: str) -> Judge:
        def judge(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
            is_older = isinstance(schema.get(partner), bool)
            return (older if is_older else newer)(validator, value, instance, schema)

        return judge

    def unless_boolean(newer: Judge) -> Judge:
        def judge(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
            return () if isinstance(value, bool) else newer(validator, value, instance, schema)

        return judge

    own = base.VALIDATORS
    return {
        "items": of_lists(own["items"], seven["items"]),
        "additionalItems": seven["additionalItems"],
        "dependencies": seven["dependencies"],
        "$recursiveRef": by_draft[2019].VALIDATORS["$recursiveRef"],
        "minimum": of_booleans(own["minimum"], four["minimum"], "exclusiveMinimum"),
        "maximum": of_booleans(own["maximum"], four["maximum"], "exclusiveMaximum"),
        "exclusiveMinimum": unless_boolean(own["exclusiveMinimum"]),
        "exclusiveMaximum": unless_boolean(own["exclusiveMaximum"]),
    }


@lru_cache(maxsize=1024)
def _language(pattern: str) -> Regex:
    return parse_pattern(pattern, reading="narrow")


def _error(message: str) -> "ValidationError":
    from jsonschema.exceptions import ValidationError

    return ValidationError(message)


def _pattern(_validator: Any, value: Any, instance: Any, _schema: Any) -> Any:
    if isinstance(instance, str) and not matches(_language(value), instance):
        yield _error("it does not match its pattern")


def _format(_validator: Any, value: Any, instance: Any, _schema: Any) -> Any:
    language = format_regex(value) if isinstance(instance, str) else None
    if language is not None and not matches(language, instance):
        yield _error(f"it is no {value}")


def _pattern_properties(validator: Any, value: Any, instance: Any, _schema: Any) -> Any:
    if not isinstance(instance, dict):
        return
    for pattern, inner in value.items():
        for key, member in instance.items():
            if matches(_language(pattern), key):
                yield from validator.descend(member, inner, path=key, schema_path=pattern)


def _additional_properties(library: Judge) -> Judge:
    """The library's, told by name which keys the patterns cover."""

    def judge(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if isinstance(instance, dict) and "patternProperties" in schema:
            covered = dict.fromkeys(_covered(schema["patternProperties"], instance), True)
            properties = {**covered, **schema.get("properties", {})}
            schema = {**schema, "properties": properties, "patternProperties": {}}
        return library(validator, value, instance, schema)

    return judge


def _covered(patterns: Any, instance: dict[str, Any]) -> Iterator[str]:
    languages = [_language(pattern) for pattern in patterns]
    for key in instance:
        if any(matches(language, key) for language in languages):
            yield key


def _multiple_of(library: Judge) -> Judge:
    """By the decimal digits, and as the library has it, which divides doubles: a text that one of
    them refuses is no good to whoever validates it again."""

    def judge(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if isinstance(instance, bool) or not isinstance(instance, int | float):
            return
        if Fraction(repr(instance)) % Fraction(repr(value)):
            yield _error(f"it is no multiple of {value}")
            return
        yield from library(validator, value, instance, schema)

    return judge


def _unevaluated_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
    if not isinstance(instance, dict):
        return
    evaluated = _evaluated_keys(validator, instance, schema)
    for key in instance.keys() - evaluated:
        for _ in validator.descend(instance[key], value, path=key, schema_path=key):
            yield _error(f"the property {key[:40]!r} may not be there")


def _evaluated_keys(validator: Any, instance: dict[str, Any], schema: Any) -> set[str]:
    """The keys that other keywords of the schema speak of, also inside of its parts."""
    if not isinstance(schema, dict):
        return set()
    keys = set(schema.get("properties", {})) & instance.keys()
    keys |= set(_covered(schema.get("patternProperties", {}), instance))
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in schema:
            keys |= {
                key
                for key, member in instance.items()
                if validator.evolve(schema=schema[keyword]).is_valid(member)
            }
    for reference in ("$ref", "$dynamicRef"):
        if reference in schema:
            found = validator._resolver.lookup(schema[reference])
            there = validator.evolve(schema=found.contents, _resolver=found.resolver)
            keys |= _evaluated_keys(there, instance, found.contents)
    for part in _parts(validator, instance, schema):
        keys |= _evaluated_keys(validator, instance, part)
    return keys


def _parts(validator: Any, instance: dict[str, Any], schema: dict[str, Any]) -> Iterator[Any]:
    """The subschemas of the same value that hold for it."""

    def holds(part: Any) -> bool:
        return bool(validator.evolve(schema=part).is_valid(instance))

    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from filter(holds, schema.get(keyword, ()))
    for key, part in schema.get("dependentSchemas", {}).items():
        if key in instance:
            yield part
    if "if" in schema:
        is_met = holds(schema["if"])
        if is_met:
            yield schema["if"]
        yield schema.get("then" if is_met else "else", True)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is larger than a double can hold")
    return value


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    return int(text)
