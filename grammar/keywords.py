"""What is known about JSON Schema's keywords: types, drafts, annotations, constraints."""

from grammar.schema_document import Json

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

# Keywords that only describe; the output cannot break them.
ANNOTATIONS = frozenset(
    "$schema $id id $anchor $comment $vocabulary $dynamicAnchor $recursiveAnchor title description "
    "default example examples deprecated readOnly writeOnly contentEncoding contentMediaType "
    "contentSchema discriminator nullable externalDocs xml".split()
)
CONTAINERS = frozenset({"$defs", "definitions"})

# Keywords of a type bind only values of that type.
TYPE_KEYWORDS = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset(
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    ),
    "array": frozenset({"items", "prefixItems", "additionalItems", "minItems", "maxItems"}),
    "object": frozenset(
        "properties patternProperties additionalProperties required minProperties maxProperties"
        .split()
    ),
}  # fmt: skip
GENERAL_KEYWORDS = frozenset({"type", "enum", "const", "allOf", "anyOf", "oneOf", "$ref"})
# What every engine has a notion of; xgrammar has one of nothing else.
BASIC = GENERAL_KEYWORDS.union(*TYPE_KEYWORDS.values())
# Keywords that some draft gives a meaning for the output; all others are annotations.
CONSTRAINTS = BASIC | frozenset(
    "not if then else contains minContains maxContains uniqueItems propertyNames dependencies "
    "dependentRequired dependentSchemas unevaluatedItems unevaluatedProperties $dynamicRef "
    "$recursiveRef disallow divisibleBy extends".split()
)

DRAFTS = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
    "json-schema.org/schema": None,
}


def draft_uri(schema_uri: str) -> str:
    """A `$schema` in the form in which DRAFTS lists it."""
    return schema_uri.removeprefix("https://").removeprefix("http://").rstrip("#")


def type_of(value: Json) -> str:
    """The JSON Schema type of a value; a number without fraction is an integer."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    names: dict[type, str] = {float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]


def is_of_type(value: Json, types: frozenset[str]) -> bool:
    name = type_of(value)
    return name in types or (name == "integer" and "number" in types)
