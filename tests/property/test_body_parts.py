"""How many lists, objects and keys a body has is told from its bytes, whatever is in its texts."""

from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway import json_text
from gateway.json_text import JsonTextError, decode_json

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
    with patch.object(json_text, "MAX_PARTS", max_parts):
        try:
            return bool(decode_json(msgspec.json.encode(body)) != body)
        except JsonTextError:
            return True


@given(bodies)
@example({"a": ["", "[", "\\", '"'], "": {"": ""}})
def test_body_is_refused_from_one_part_too_many_on(body: dict[str, Any]) -> None:
    assert not is_refused(body, max_parts=num_parts(body))
    assert is_refused(body, max_parts=num_parts(body) - 1)


def spelled(value: Any, repeat: bool) -> str:
    """JSON with the first key of each object again at its end, if `repeat`."""
    if isinstance(value, list):
        return "[" + ", ".join(spelled(item, repeat) for item in value) + "]"
    if not isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    pairs = [*value.items(), *list(value.items())[: int(repeat)]]
    inside = (f"{msgspec.json.encode(k).decode()}: {spelled(v, repeat)}" for k, v in pairs)
    return "{" + ", ".join(inside) + "}"


@given(values)
def test_a_key_that_stands_twice_is_found_whatever_the_texts_are(value: Any) -> None:
    assert decode_json(spelled(value, repeat=False).encode()) == value
    repeated = spelled(value, repeat=True)
    if repeated == spelled(value, repeat=False):
        return
    with pytest.raises(JsonTextError, match="twice"):
        decode_json(repeated.encode())
