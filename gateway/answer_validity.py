"""Whether an answer fits the schema it was asked for, by the jsonschema package alone: a judge that
shares nothing with the server that may be measured."""

import json
from typing import Any


class AnswerJudge:
    """Keeps the validators of the schemas it has seen. The package is loaded with the first."""

    def __init__(self) -> None:
        self._validators: dict[str, Any] = {}

    def is_valid(self, text: str, schema: Any) -> bool:
        """Not so where the answer is no JSON, or where the schema itself is none."""
        import jsonschema
        from jsonschema.validators import validator_for
        from referencing.jsonschema import EMPTY_REGISTRY

        try:
            answer = json.loads(text, parse_constant=_refuse)
            name = json.dumps(schema, sort_keys=True)
            if name not in self._validators:
                kind = validator_for(schema, default=jsonschema.Draft202012Validator)
                kind.check_schema(schema)
                # With a registry of its own nothing is fetched from anywhere.
                self._validators[name] = kind(schema, registry=EMPTY_REGISTRY)
            return bool(self._validators[name].is_valid(answer))
        except (ValueError, RecursionError, jsonschema.SchemaError):
            return False
        except Exception as error:
            if type(error).__module__.startswith(("referencing", "jsonschema")):
                return False  # a reference that leads nowhere
            raise


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
