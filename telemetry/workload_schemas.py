"""Schemas that answers of a workload have to fit: small, and strict as OpenAI's structured outputs
want them (every property required, none beside them)."""

from typing import Any

Schema = dict[str, Any]


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _choice(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer"}
_PRICE: Schema = {"type": "number"}
_FLAG: Schema = {"type": "boolean"}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


# By name, which is also the word for it in the prompt.
SCHEMAS: tuple[tuple[str, Schema], ...] = (
    ("person", _object(name=_TEXT, age=_COUNT, role=_choice("admin", "editor", "reader"))),
    (
        "order",
        _object(
            number=_COUNT,
            lines=_list(_object(article=_TEXT, amount=_COUNT, price=_PRICE)),
            paid=_FLAG,
        ),
    ),
    (
        "ticket",
        _object(
            title=_TEXT,
            priority=_choice("low", "normal", "high"),
            labels=_list(_choice("bug", "question", "request")),
            assignee={"anyOf": [_TEXT, {"type": "null"}]},
        ),
    ),
    (
        "route",
        _object(start=_TEXT, stops=_list(_object(place=_TEXT, minutes=_COUNT)), end=_TEXT),
    ),
    (
        "tree",
        {
            **_object(root={"$ref": "#/$defs/node"}),
            "$defs": {"node": _object(name=_TEXT, children=_list({"$ref": "#/$defs/node"}))},
        },
    ),
)
