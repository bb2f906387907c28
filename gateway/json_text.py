"""Decodes JSON that clients send, within bounds, and takes none that says two things at once.

A key that stands twice in one object is found by counting: outside of texts a colon follows each
key, so that a decoded value with fewer keys than its text has colons has lost some. Only then is
the text read again, to name one.
"""

import json
from typing import Any

import msgspec

# Far more than any message or schema needs, far less than what exhausts the stack of whatever
# walks the value later.
MAX_DEPTH = 128
# Far more than any request has. Decoding holds the interpreter, and with it the event loop: 20 ms
# for this many, a second for 8 MB of nothing else.
MAX_PARTS = 100_000
MAX_SHOWN_KEY_CHARS = 64
# All that counts parts, and the quotes that tell them from text.
_MARKS = b'[{:"'
_NO_MARKS = bytes(byte for byte in range(256) if byte not in _MARKS)


class JsonTextError(Exception):
    """What is wrong with the text, as a sentence without its subject and end."""


def decode_json(text: bytes) -> Any:
    """Raises: JsonTextError."""
    if _has_too_many_parts(text):
        raise JsonTextError(f"has more than {MAX_PARTS} lists, objects and keys")
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, ValueError) as error:
        raise JsonTextError(f"cannot be parsed: {error}") from None
    if _is_too_deep(value, text):
        raise _too_deep()
    key = _repeated_key(value, text)
    if key is not None:
        raise JsonTextError(f"has an object with the key {key[:MAX_SHOWN_KEY_CHARS]!r} twice")
    return value


def _too_deep() -> JsonTextError:
    return JsonTextError("is nested too deeply")


def _has_too_many_parts(text: bytes) -> bool:
    """Lists, objects and keys; brackets and colons in a text, as a prompt of code has, are none."""
    if sum(map(text.count, (b"[", b"{", b":"))) <= MAX_PARTS:
        return False
    return len(_marks_outside(text)) > MAX_PARTS


def _marks_outside(text: bytes) -> bytes:
    """The opening brackets and the colons that are not inside the texts of a JSON text."""
    marks = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, delete=_NO_MARKS)
    # Two quotes in a row are a text without marks, or two texts with none between them: without
    # such pairs there is no object here for each text.
    return b"".join(marks.replace(b'""', b"").split(b'"')[::2])


def _is_too_deep(value: Any, text: bytes) -> bool:
    # A long list of token ids has few brackets and need not be walked.
    if text.count(b"{") + text.count(b"[") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _containers(outer)]
        if not level:
            return False
    return True


def _containers(value: Any) -> list[Any]:
    inside = value.values() if isinstance(value, dict) else value
    return [item for item in inside if isinstance(item, dict | list)]


def _repeated_key(value: Any, text: bytes) -> str | None:
    """A key that one of the objects in the text has twice; `value` is what it was decoded to."""
    # Nearly always there are no colons in its texts, or the few keys are found at once.
    if _has_keys(value, text.count(b":")) or _has_keys(value, _marks_outside(text).count(b":")):
        return None
    try:
        # Numbers are of no interest here, and Python refuses to read long ones.
        json.loads(text, object_pairs_hook=_check_pairs, parse_int=len, parse_float=len)
    except _RepeatedKey as repeated:
        return str(repeated)
    raise AssertionError("an object has lost a key")


def _has_keys(value: Any, wanted: int) -> bool:
    """Whether the value has so many keys at all depths; stops as soon as it has."""
    level = [value]
    while level and wanted > 0:
        inside: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                wanted -= len(item)
                inside += item.values()
            elif isinstance(item, list):
                inside += item
        level = inside
    return wanted <= 0


class _RepeatedKey(Exception):
    """Carries the key out of the decoder."""


def _check_pairs(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _RepeatedKey(key)
        seen.add(key)
