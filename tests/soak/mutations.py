"""Real-looking schemas, and what happens to them: keywords swapped, values of the wrong kind,
depth, size, references to anywhere. All from one seed.
"""

import copy
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Json = Any

NAMES = ("id", "name", "type", "items", "value", "é", 'q"k', "a/b~c", "", "__proto__", "$ref")
PATTERNS = ("^[a-z]+$", "(a+)+$", "^(?=.*\\d).{3,}$", "(?<!x)y", "[", "\\p{L}{2}", "a{1,70000}",
            "((a|b)*c){9}", "\\1(a)", "^$", "(?i)x", "[^\\d\\W]", "\\ud83d\\ude00")  # fmt: skip
FORMATS = ("date-time", "email", "uri", "ipv6", "uuid", "regex", "color", "", "DATE")
REFERENCES = ("#", "#/", "#/$defs/a", "#/properties/id", "#/none", "http://example.com/s", "#a",
              "other.json", "#/$defs/%25", "#/anyOf/0", "")  # fmt: skip
NUMBERS = (0, 1, -1, 2, 0.5, 1e-9, 3.0, 10**6, 2**53 + 1, 10**40, -0.0, 1e308, 65_536, 0.1)
SCALARS: tuple[Json, ...] = (None, True, False, "", "a", "null", [], {}, [[]], [None], {"a": {}})
JUNK: tuple[Json, ...] = (*SCALARS, *NUMBERS, "#/nope", "(", {"$ref": "#"}, [{}, 3], "\u0000", "😀")
TYPES = ("string", "integer", "number", "boolean", "null", "array", "object", "any", "file")
SCHEMA_KEYWORDS = ("items", "additionalProperties", "not", "if", "then", "else", "contains",
                   "propertyNames", "unevaluatedProperties", "unevaluatedItems",
                   "additionalItems")  # fmt: skip
LIST_KEYWORDS = ("allOf", "anyOf", "oneOf", "prefixItems")
MAP_KEYWORDS = ("properties", "patternProperties", "$defs", "dependentSchemas", "definitions")
COUNT_KEYWORDS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties",
                  "maxProperties", "minContains", "maxContains")  # fmt: skip
NUMBER_KEYWORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
DRAFTS = ("http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#",
          "https://json-schema.org/draft/2020-12/schema", "http://example.com/schema")  # fmt: skip


def schema_texts(seed: int, *, samples: Sequence[Json] = ()) -> Iterator[str]:
    """Without end: schemas made up or taken from `samples`, most of them damaged."""
    rng = random.Random(seed)
    while True:
        is_sample = samples and rng.random() < 0.5
        schema = copy.deepcopy(rng.choice(samples)) if is_sample else made_up(rng, depth=4)
        for _ in range(rng.choice((0, 1, 1, 2, 3, 6))):
            schema = rng.choice(MUTATIONS)(schema, rng)
        yield damaged_text(json.dumps(schema, ensure_ascii=rng.random() < 0.5), rng)


def made_up(rng: random.Random, *, depth: int) -> Json:
    """A schema of any keywords, sensible more often than not."""
    if depth == 0 or rng.random() < 0.1:
        return rng.choice((True, {}, {"type": rng.choice(TYPES[:7])}))
    schema: dict[str, Json] = {}
    if rng.random() < 0.7:
        schema["type"] = rng.choice(TYPES[:7])
    for _ in range(rng.randint(0, 4)):
        _add_keyword(schema, rng, depth=depth - 1)
    return schema


def _add_keyword(schema: dict[str, Json], rng: random.Random, *, depth: int) -> None:
    names = rng.sample(NAMES, k=rng.randint(0, 3))
    kind = rng.randrange(8)
    if kind == 0:
        schema[rng.choice(SCHEMA_KEYWORDS)] = made_up(rng, depth=depth)
    elif kind == 1:
        branches = [made_up(rng, depth=depth) for _ in range(rng.randint(1, 3))]
        schema[rng.choice(LIST_KEYWORDS)] = branches
    elif kind == 2:
        schema[rng.choice(MAP_KEYWORDS)] = {name: made_up(rng, depth=depth) for name in names}
    elif kind == 3:
        schema[rng.choice(COUNT_KEYWORDS)] = rng.choice((0, 1, 2, 3, 40))
    elif kind == 4:
        schema[rng.choice(NUMBER_KEYWORDS)] = rng.choice(NUMBERS)
    elif kind == 5:
        schema.update(rng.choice((
            {"pattern": rng.choice(PATTERNS)}, {"format": rng.choice(FORMATS)},
            {"uniqueItems": True}, {"$ref": rng.choice(REFERENCES)},
            {"$schema": rng.choice(DRAFTS)},
        )))  # fmt: skip
    elif kind == 6:
        schema[rng.choice(("enum", "required"))] = list(names)
    else:
        schema["const"] = copy.deepcopy(rng.choice(SCALARS))


def _places(value: Json) -> list[tuple[Json, Json]]:
    """Every container in the value with one of its keys."""
    found: list[tuple[Json, Json]] = []
    waiting = [value]
    while waiting:
        container = waiting.pop()
        if isinstance(container, dict | list):
            keys = list(container) if isinstance(container, dict) else range(len(container))
            found += [(container, key) for key in keys]
            waiting += [container[key] for key in keys]
    return found


def _replace(schema: Json, rng: random.Random) -> Json:
    """Something becomes what does not belong there."""
    if places := _places(schema):
        container, key = rng.choice(places)
        container[key] = copy.deepcopy(rng.choice(JUNK))
        return schema
    return copy.deepcopy(rng.choice(JUNK))


def _swap(schema: Json, rng: random.Random) -> Json:
    """Two parts change places."""
    places = _places(schema)
    if len(places) > 1:
        (one, key), (other, other_key) = rng.sample(places, 2)
        one[key], other[other_key] = (
            copy.deepcopy(other[other_key]),
            copy.deepcopy(one[key]),
        )
    return schema


def _rename(schema: Json, rng: random.Random) -> Json:
    """A key becomes another keyword."""
    objects = [container for container, _ in _places(schema) if isinstance(container, dict)]
    if objects:
        container = rng.choice(objects)
        known = (
            *SCHEMA_KEYWORDS,
            *LIST_KEYWORDS,
            *MAP_KEYWORDS,
            *NUMBER_KEYWORDS,
            "$id",
            "pattern",
        )
        container[rng.choice(known)] = container.pop(rng.choice(list(container)))
    return schema


def _drop(schema: Json, rng: random.Random) -> Json:
    """Something is missing."""
    if places := _places(schema):
        container, key = rng.choice(places)
        del container[key]
    return schema


def _nest(schema: Json, rng: random.Random) -> Json:
    """The whole becomes a part of itself, several times."""
    for _ in range(rng.choice((1, 2, 5, 20, 80))):
        keyword = rng.choice((*SCHEMA_KEYWORDS, "oneOf", "allOf", "anyOf"))
        schema = {keyword: [schema, {}] if keyword in LIST_KEYWORDS else schema}
    return schema


def _inflate(schema: Json, rng: random.Random) -> Json:
    """A part becomes very large or very many."""
    size = rng.choice((50, 500, 3000))
    big: dict[str, Json] = rng.choice((
        {"enum": [f"v{n}" for n in range(size)]},
        {"properties": {f"p{n}": {"type": "integer"} for n in range(size)}},
        {"maxItems": size * 1000, "minItems": size},
        {"maxLength": size * 100, "pattern": "^[ab]*$"},
        {"required": [f"r{n}" for n in range(size)]},
        {"oneOf": [{"properties": {"k": {"const": n % 7}}} for n in range(size // 10)]},
        {"not": {"enum": list(range(size))}},
    ))  # fmt: skip
    return {**schema, **big} if isinstance(schema, dict) else big


def _add(schema: Json, rng: random.Random) -> Json:
    """One more keyword somewhere."""
    objects = [container for container, _ in _places(schema) if isinstance(container, dict)]
    target = rng.choice(objects) if objects else {}
    _add_keyword(target, rng, depth=2)
    return schema if objects else target


MUTATIONS: tuple[Callable[[Json, random.Random], Json], ...] = (
    _replace, _replace, _swap, _rename, _drop, _nest, _inflate, _add, _add,
)  # fmt: skip


def damaged_text(text: str, rng: random.Random) -> str:
    """Now and then the text itself is no JSON any more."""
    if rng.random() > 0.05:
        return text
    cut = rng.randint(0, len(text))
    return rng.choice((text[:cut], text[:cut] + "\\ud800" + text[cut:], text + "}", "[" * 5000))
