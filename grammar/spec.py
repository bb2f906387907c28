"""What a request may demand of its output, as plain data that can cross processes."""

import hashlib
from typing import Literal

import msgspec

ConstraintKind = Literal["json_schema", "json_object", "regex", "choice"]
EngineName = Literal["llguidance", "xgrammar"]


class ConstraintSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One constraint, and the engine that shall enforce it.

    `value` is the JSON text of the schema in the client's key order (json_schema), the pattern
    (regex), or a JSON array of strings (choice); empty for json_object.
    """

    kind: ConstraintKind
    value: str = ""
    engine: EngineName = "llguidance"

    def key(self) -> str:
        """SHA-256 over engine, kind and value: equal constraints compile once."""
        text = "\x00".join((self.engine, self.kind, self.value))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
