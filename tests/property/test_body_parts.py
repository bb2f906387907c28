"""How many lists, objects and keys a body has is told from its bytes, whatever is in its texts."""

from typing import Any
from unittest.mock import patch

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from gateway import validation
from gateway.errors import InvalidRequest

texts = st.text(alphabet='[]{}:,"\\a ', max_size=8)
values = st.recursive(
    st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
bodies = st.dictionaries(texts, values, max_size=4)


def num_parts(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(num_parts, value.values()))
    return 1 + sum(map(num_parts, value)) if isinstance(value, list) else 0


def is_refused(body: dict[str, Any], *, max_parts: int) -> bool:
    with patch.object(validation, "MAX_PARTS", max_parts):
        try:
            return validation.decode_object(msgspec.json.encode(body)) != body
        except InvalidRequest:
            return True


@given(bodies)
@example({"a": ["", "[", "\\", '"'], "": {"": ""}})
def test_body_is_refused_from_one_part_too_many_on(body: dict[str, Any]) -> None:
    assert not is_refused(body, max_parts=num_parts(body))
    assert is_refused(body, max_parts=num_parts(body) - 1)
