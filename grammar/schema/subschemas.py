"""Where schemas stand in a schema: below which keywords, and how deep below them."""

from collections.abc import Iterator

from grammar.schema_document import Json

# The keyword's value is a schema, a list of them, or an object of them.
ALONE = frozenset(
    "not if then else items additionalItems additionalProperties contains propertyNames "
    "unevaluatedItems unevaluatedProperties".split()
)
IN_LIST = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
BY_NAME = frozenset(
    "properties patternProperties dependentSchemas dependencies $defs definitions".split()
)


def inner_schemas(keyword: str, value: Json) -> Iterator[tuple[tuple[str | int, ...], Json]]:
    """Steps from the keyword, and what is a schema there unless the document is malformed."""
    if keyword in BY_NAME:
        for name, inner in value.items() if isinstance(value, dict) else ():
            if keyword != "dependencies" or not isinstance(inner, list | str):
                yield (name,), inner
    elif keyword in IN_LIST and isinstance(value, list):
        for index, inner in enumerate(value):
            yield (index,), inner
    elif keyword in ALONE:
        yield (), value
