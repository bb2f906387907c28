"""What xgrammar 0.2 enforces of a schema whose keywords were checked one by one."""

from typing import Any

Schema = dict[str, Any]


def xgrammar_rules(schema: Schema, pointer: str) -> Schema:
    """The schema as xgrammar gets it. Raises: UnsupportedConstraint."""
    raise NotImplementedError(pointer, schema)
