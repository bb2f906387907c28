"""Keys that stand twice in one object, at any depth and whatever stands around them."""

import msgspec
import pytest

from gateway.errors import InvalidRequest
from gateway.json_text import JsonTextError, decode_json
from gateway.validation import decode_object


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"a": 1, "a": 1}', "a"),
        ('{"a": {"b": [1, {"c": 1, "d": 2, "c": 3}]}}', "c"),
        ('[{"x": {"y": 1}, "x": {"y": 1}}]', "x"),
        ('{"a": ":::", "b": 1, "b": "{{:"}', "b"),
        ('{"\\u0061": 1, "a": 2}', "a"),
        ('{"a\\\\": 1, "a\\\\": 2}', "a\\"),
        ('{"\\":": 1, "\\":": 2}', '":'),
        ('{"": {"": 1, "": 2}}', ""),
        ('{"n": 1' + "0" * 4_000 + ', "n": 1e5}', "n"),
    ],
)
def test_repeated_key_is_refused_and_named(text: str, key: str) -> None:
    with pytest.raises(JsonTextError, match="twice") as caught:
        decode_json(text.encode())
    assert repr(key) in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"a": {"a": 1}}}',
        '[{"a": 1}, {"a": 1}]',
        '{"a": "\\"a\\": 1, \\"a\\": 2", "b": ["a:", ":", "a"]}',
        '{"a": "\\\\", ":": ":", "\\\\": "\\\\\\""}',
        '{"A": 1, "a": 2, " a": 3}',
        '"a: b: c"',
        "[]",
    ],
)
def test_keys_that_only_look_repeated_are_taken(text: str) -> None:
    assert decode_json(text.encode()) == msgspec.json.decode(text)


def test_a_long_key_is_not_repeated_back() -> None:
    key = b'"' + b"k" * 5000 + b'": 1'
    with pytest.raises(InvalidRequest) as caught:
        decode_object(b"{" + key + b"," + key + b"}")
    assert caught.value.code == "invalid_json"
    assert len(caught.value.message) < 200
