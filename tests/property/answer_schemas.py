"""A Hypothesis strategy of small schemas whose answers are worth generating: objects and arrays as
often as scalars, with keys that are the only way on and with choices."""

from typing import Any

from hypothesis import strategies as st

from tests.property import grammar_schemas, keyword_schemas

_small_schemas = st.one_of(grammar_schemas.schemas(), keyword_schemas.schemas)


@st.composite
def _closed_objects(draw: st.DrawFn) -> dict[str, Any]:
    """A generated schema between keys that are the only way on."""
    return {
        "type": "object",
        "properties": {
            "kind": {"enum": ["answer", "anything", "nothing"]},
            "content": draw(_small_schemas),
            "is_last": {"type": "boolean"},
        },
        "required": ["kind", "content", "is_last"],
        "additionalProperties": False,
    }


schemas: st.SearchStrategy[Any] = st.one_of(
    _small_schemas,
    _closed_objects(),
    _closed_objects(),
    keyword_schemas.recursive_schemas().map(lambda schema: {"type": "object", **schema}),
)
