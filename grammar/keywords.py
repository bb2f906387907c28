"""What is known about JSON Schema's keywords: types, drafts, annotations, and misspellings."""

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
ENFORCED = GENERAL_KEYWORDS.union(*TYPE_KEYWORDS.values())

# Keywords of some draft that no engine enforces.
UNENFORCED = frozenset(
    "not if then else contains minContains maxContains uniqueItems propertyNames dependencies "
    "dependentRequired dependentSchemas unevaluatedItems unevaluatedProperties $dynamicRef "
    "$recursiveRef disallow divisibleBy extends".split()
)

# Formats that are enforced, or refused where an engine cannot; all others are annotations.
ASSERTED_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
)

# Short keywords have too many innocent neighbours to be compared with.
SPELLABLE = frozenset(k for k in ENFORCED | UNENFORCED if len(k) > 3) - {"then", "else"}

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


def misspelled(keyword: str) -> str | None:
    """The keyword of JSON Schema that an unknown one is probably meant to be.

    The standard makes unknown keywords annotations, so a slip of the pen would silently
    disable a constraint; what differs from a keyword by case, separators or one letter is
    therefore taken for a slip. Names that begin with "x-" or "_" never are.
    """
    if keyword.startswith(("x-", "_")):
        return None
    plain = _plain(keyword)
    for known in sorted(SPELLABLE):
        if plain == _plain(known) or _is_one_edit_apart(plain, _plain(known)):
            return known
    return None


def _plain(keyword: str) -> str:
    return "".join(character for character in keyword.lower() if character.isalnum())


def _is_one_edit_apart(one: str, other: str) -> bool:
    """One letter more, less, different, or two neighbours swapped."""
    if abs(len(one) - len(other)) > 1:
        return False
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    a, b = one[start:], other[start:]
    swapped = a[:2] == b[:2][::-1] and a[2:] == b[2:]
    return a[1:] == b or a == b[1:] or a[1:] == b[1:] or swapped
