"""Hypothesis strategies of schemas in which keywords meet each other, and of values near them.

The values are small and drawn from the same few names and numbers, so that schemas about them are
satisfied and violated often.
"""

from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]

NAMES = ["a", "b", "ab", "c1"]
TEXTS = ["", "a", "b", "ab", "aab", "c1", "2024-02-29", "x@y.zz"]
NUMBERS: list[int | float] = [-3, -1, 0, 1, 2, 3, 4, 6, 12, 0.5, 1.5, 2.5]
PATTERNS = ["^a", "b$", "^a*b?$", r"\d", "^(a|c)", "^.{2,3}$", "^(?!ab)", "^(?=a)a?b"]
FORMATS = ["date", "email", "uuid", "no-such-format"]
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]

values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(TEXTS)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=5,
)


def _counts(low: str, high: str) -> list[st.SearchStrategy[Schema]]:
    return [st.fixed_dictionaries({keyword: st.integers(0, 3)}) for keyword in (low, high)]


scalar_keywords: st.SearchStrategy[Schema] = st.one_of(
    st.sampled_from(TYPES).map(lambda name: {"type": name}),
    st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True).map(
        lambda names: {"type": names}
    ),
    values.map(lambda value: {"const": value}),
    st.lists(values, min_size=1, max_size=4).map(lambda found: {"enum": found}),
    st.tuples(
        st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
        st.sampled_from(NUMBERS),
    ).map(lambda pair: {pair[0]: pair[1]}),
    st.sampled_from([1, 2, 3, 0.5, 1.5]).map(lambda number: {"multipleOf": number}),
    *_counts("minLength", "maxLength"),
    st.sampled_from(PATTERNS).map(lambda pattern: {"pattern": pattern}),
    st.sampled_from(FORMATS).map(lambda name: {"format": name}),
)


def _array_keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    return st.one_of(
        inner.map(lambda schema: {"items": schema}),
        st.lists(inner, min_size=1, max_size=2).map(lambda found: {"prefixItems": found}),
        *_counts("minItems", "maxItems"),
        st.booleans().map(lambda flag: {"uniqueItems": flag}),
        inner.map(lambda schema: {"contains": schema}),
        st.tuples(inner, st.integers(0, 2), st.integers(0, 2)).map(
            lambda found: {"contains": found[0], "minContains": found[1], "maxContains": found[2]}
        ),
    )


def _object_keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    members = st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=3)
    names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
    return st.one_of(
        members.map(lambda found: {"properties": found}),
        st.tuples(members, inner).map(
            lambda found: {"properties": found[0], "additionalProperties": found[1]}
        ),
        st.dictionaries(st.sampled_from(PATTERNS), inner, min_size=1, max_size=2).map(
            lambda found: {"patternProperties": found}
        ),
        inner.map(lambda schema: {"additionalProperties": schema}),
        names.map(lambda found: {"required": found}),
        *_counts("minProperties", "maxProperties"),
        inner.map(lambda schema: {"propertyNames": schema}),
        st.dictionaries(st.sampled_from(NAMES), names, min_size=1, max_size=2).map(
            lambda found: {"dependentRequired": found}
        ),
        st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=1).map(
            lambda found: {"dependentSchemas": found}
        ),
    )


def _combinations(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    branches = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        *(st.fixed_dictionaries({keyword: branches}) for keyword in ("allOf", "anyOf", "oneOf")),
        inner.map(lambda schema: {"not": schema}),
        st.tuples(inner, inner, inner).map(
            lambda found: {"if": found[0], "then": found[1], "else": found[2]}
        ),
    )


def _merged(parts: list[Schema]) -> Schema:
    return {keyword: value for part in parts for keyword, value in part.items()}


def _extended(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keyword = st.one_of(
        scalar_keywords, _array_keywords(inner), _object_keywords(inner), _combinations(inner)
    )
    return st.booleans() | st.lists(keyword, min_size=1, max_size=3).map(_merged)


schemas: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.lists(scalar_keywords, max_size=2).map(_merged), _extended, max_leaves=6
)


@st.composite
def recursive_schemas(draw: st.DrawFn) -> Schema:
    """Schemas with definitions that refer to each other and to the root, siblings beside `$ref`."""
    reference = st.sampled_from(["#", "#/$defs/one", "#/$defs/two"]).map(lambda r: {"$ref": r})
    leaf = st.one_of(reference, reference, st.lists(scalar_keywords, max_size=1).map(_merged))
    inside = st.one_of(_array_keywords(leaf), _object_keywords(leaf), scalar_keywords)
    definition = st.lists(inside, min_size=1, max_size=2).map(_merged)
    root = draw(definition)
    if draw(st.booleans()):
        root = {**root, **draw(_combinations(st.one_of(definition, reference)))}
    return {**root, "$defs": {"one": draw(definition), "two": draw(definition)}}
