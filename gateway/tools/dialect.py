"""How a family of models writes calls: the one description from which the grammar, the parser and
the text of a conversation's earlier calls are made.
"""

import hashlib
import json
import secrets
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grammar.tool_calls import CallStyle, Wrapping

DialectName = Literal["hermes", "llama3_json", "pythonic", "mistral", "granite", "phi"]
_LETTERS = string.ascii_letters + string.digits
_ID_LEN = 24
# What Mistral's templates demand of ids in a conversation.
_SHORT_ID_LEN = 9


@dataclass(frozen=True, slots=True)
class CallForm:
    """A call: `before`, the name, `after`, the arguments, `end`."""

    before: str
    after: str
    end: str = ""

    def begin(self, name: str) -> str:
        return f"{self.before}{name}{self.after}"


@dataclass(frozen=True, slots=True)
class Dialect:
    """One block of calls: `opening`, calls with a `separator` between them, `closing`.

    The first form is the one to be written, others are understood as well. `trigger` is the
    beginning of the opening that ends any text; without one calls are the whole answer, from its
    first character. With a `wrapping` an answer may also be calls of another look. `markers` are
    texts that the family's tokenizers have as one token, the trigger among them. `gap` is what a
    template puts between a text and the block. `json_marker` may open the block where the answer
    might be JSON of another kind.
    """

    name: DialectName
    forms: tuple[CallForm, ...]
    opening: str = ""
    separator: str = ""
    closing: str = ""
    trigger: str | None = None
    markers: tuple[str, ...] = ()
    style: CallStyle = "json"
    gap: str = ""
    json_marker: str | None = None
    has_short_ids: bool = False
    wrapping: Wrapping | None = None

    def new_call_id(self) -> str:
        """An id that no other call has."""
        if self.has_short_ids:
            return _random_text(_SHORT_ID_LEN)
        return f"call_{_random_text(_ID_LEN)}"

    def block(self, calls: Sequence[tuple[str, str]]) -> str:
        """The text of calls, each a name and the text of its arguments, as the model writes it."""
        form = self.forms[0]
        texts = (
            f"{form.begin(name)}{self._arguments(arguments)}{form.end}" for name, arguments in calls
        )
        return f"{self.opening}{self.separator.join(texts)}{self.closing}"

    def _arguments(self, text: str) -> str:
        """JSON stays as it was written, so that the tokens are those that the model made."""
        if self.style == "json":
            return text.strip() or "{}"
        try:
            value = json.loads(text or "{}")
        except (ValueError, RecursionError):
            return text
        return keywords_text(value) if isinstance(value, dict) else text


def keywords_text(arguments: dict[str, Any]) -> str:
    """Arguments as a call of Python has them, with values in JSON."""
    return ", ".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items()
    )


def json_text(pairs: Iterable[tuple[str, str]]) -> str:
    """An object of names and the JSON texts of their values, without the closing brace."""
    return "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in pairs)


def short_call_id(call_id: str) -> str:
    """An id as templates demand it that take nine letters and digits: itself, or always the same
    one in its place."""
    if len(call_id) == _SHORT_ID_LEN and call_id.isascii() and call_id.isalnum():
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode(errors="replace")).digest())
    letters = []
    for _ in range(_SHORT_ID_LEN):
        number, letter = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return "".join(letters)


def _random_text(length: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(length))
