"""Hypothesis strategies of schemas made of the keywords that the coverage check accepts."""

from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]

KEYS = ["a", "b", 'q"k', "é", "long name"]
PATTERNS = ["^[a-c]+$", "^a|b$", "x.y", r"^\d{2}-\w$", r"^[^a-y]{2}$", r"^(?:no|yes)\.$", r"\S\s"]
FORMATS = [
    "date",
    "date-time",
    "time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
]
LITERALS: list[Any] = ["a", 'q"\\', "日本\n", "", 0, -3, 2.5, 1e-7, True, False, None, [], [1, "x"]]
LITERALS += [{}, {"k": {"n": None}}]


def _bounded(draw: st.DrawFn, schema: Schema, lower: str, upper: str, *, most: int) -> None:
    low = draw(st.none() | st.integers(0, most))
    high = draw(st.none() | st.integers(low or 0, most + 2))
    schema.update({k: v for k, v in ((lower, low), (upper, high)) if v is not None})


@st.composite
def strings(draw: st.DrawFn) -> Schema:
    schema: Schema = {"type": "string"}
    kind = draw(st.sampled_from(["length", "pattern", "format"]))
    if kind == "length":
        _bounded(draw, schema, "minLength", "maxLength", most=5)
    elif kind == "pattern":
        schema["pattern"] = draw(st.sampled_from(PATTERNS))
    else:
        schema["format"] = draw(st.sampled_from(FORMATS))
    return schema


@st.composite
def integers(draw: st.DrawFn) -> Schema:
    schema: Schema = {"type": "integer"}
    low = draw(st.none() | st.integers(-1000, 1000))
    if low is not None:
        schema[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = low
    if draw(st.booleans()):
        high = (low or 0) + draw(st.integers(20, 500))
        schema[draw(st.sampled_from(["maximum", "exclusiveMaximum"]))] = high
    if draw(st.integers(0, 3)) == 0:
        schema["multipleOf"] = draw(st.integers(2, 9))
    return schema


@st.composite
def numbers(draw: st.DrawFn) -> Schema:
    schema: Schema = {"type": "number"}
    thousandths = draw(st.none() | st.integers(-50_000, 50_000))
    if thousandths is not None:
        schema[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = thousandths / 1000
    if draw(st.booleans()):
        high = ((thousandths or 0) + draw(st.integers(100, 9_000))) / 1000
        schema[draw(st.sampled_from(["maximum", "exclusiveMaximum"]))] = high
    return schema


def scalars() -> st.SearchStrategy[Schema]:
    return st.one_of(
        strings(),
        integers(),
        numbers(),
        st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": ["string", "null"]}, {}]),
        st.sampled_from(LITERALS).map(lambda value: {"const": value}),
        st.lists(st.sampled_from(LITERALS), min_size=1, max_size=4).map(lambda v: {"enum": v}),
    )


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    schema: Schema = {"type": "array"}
    if draw(st.booleans()):
        schema["prefixItems"] = draw(st.lists(inner, min_size=1, max_size=3))
    if draw(st.booleans()):
        schema["items"] = draw(inner | st.just(False))
    if schema.get("items") is not False:
        _bounded(draw, schema, "minItems", "maxItems", most=3)
    return schema


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=4))
    schema: Schema = {"type": "object", "properties": {key: draw(inner) for key in keys}}
    schema["required"] = draw(st.lists(st.sampled_from(keys), unique=True)) if keys else []
    extra = draw(st.sampled_from(["closed", "open", "schema", "pattern", "count", "more"]))
    if extra == "closed":
        schema["additionalProperties"] = False
    elif extra == "schema":
        schema["additionalProperties"] = draw(inner)
    elif extra == "pattern":
        schema["patternProperties"] = {"^a": draw(inner)}
    elif extra == "count":
        schema["minProperties"] = 1
        schema["maxProperties"] = 4
    elif extra == "more":
        schema["required"] = [*schema["required"], "zz"]
    return schema


@st.composite
def combined(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    kind = draw(st.sampled_from(["anyOf", "oneOf", "allOf", "siblings", "untyped"]))
    if kind in ("anyOf", "oneOf"):
        return {kind: draw(st.lists(inner, min_size=1, max_size=3))}
    if kind == "allOf":
        return {"allOf": [draw(inner), draw(scalars())]}
    if kind == "siblings":
        return {**draw(inner), "anyOf": [draw(inner), draw(inner)]}
    schema = dict(draw(inner))
    schema.pop("type", None)
    return schema


def schemas() -> st.SearchStrategy[Schema]:
    """Schemas of every accepted keyword, alone and together, up to a few levels deep."""
    return st.recursive(
        scalars(),
        lambda inner: st.one_of(arrays(inner), objects(inner), combined(inner)),
        max_leaves=6,
    )
