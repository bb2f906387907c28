"""Under which names the model is served: settled once at start from its own name and settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class ModelNameError(Exception):
    """One line that says which name does not fit."""


@dataclass(frozen=True, slots=True)
class ModelNames:
    """`id` is what answers call the model, `others` are further names of it; `aliases`, names of
    other models for which it stands in, lead to its id."""

    id: str
    others: tuple[str, ...]
    aliases: Mapping[str, str]


def settle_names(own_name: str, served_names: Sequence[str], aliases: Sequence[str]) -> ModelNames:
    """`served_names` take the place of the model's own name; `aliases` are texts "name=id", where
    the id may be any name that is served.

    Raises: ModelNameError for an alias of what is not served, or of a name that is taken.
    """
    names = tuple(dict.fromkeys(served_names)) or (own_name,)
    targets: dict[str, str] = {}
    for entry in aliases:
        alias, _, target = entry.partition("=")
        if target not in names:
            raise ModelNameError(
                f"model alias {entry!r}: {target!r} is not served; served is {', '.join(names)}"
            )
        if alias in names or alias in targets:
            raise ModelNameError(f"model alias {entry!r}: {alias!r} is already a name here")
        targets[alias] = names[0]
    return ModelNames(names[0], names[1:], targets)
