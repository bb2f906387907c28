"""compose.yaml as its services are started: variables filled in, merges done."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml

from tests.model_file import ROOT

COMPOSE_FILE = ROOT / "compose.yaml"
DOTENV = ROOT / ".env"
_VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")


@dataclass(frozen=True, slots=True)
class Mount:
    """What a service sees at `target`: a volume, or a path that begins with a dot."""

    source: str
    target: str
    is_read_only: bool

    @property
    def is_path(self) -> bool:
        return self.source.startswith(".")


@dataclass(frozen=True, slots=True)
class Service:
    """One service; `raw` has what is not taken apart here."""

    name: str
    raw: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        return tuple(self.raw.get("command", ()))

    @property
    def profiles(self) -> tuple[str, ...]:
        return tuple(self.raw.get("profiles", ()))

    @property
    def networks(self) -> set[str]:
        return set(self.raw["networks"])


def load(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The whole file, with these variables set and no others."""
    filled = _filled(_document(), variables or {})
    assert isinstance(filled, dict)
    return filled


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
    return document


def services(variables: Mapping[str, str] | None = None) -> dict[str, Service]:
    return {
        name: Service(
            name,
            raw,
            {key: str(value) for key, value in raw.get("environment", {}).items()},
            tuple(_mount(text) for text in raw.get("volumes", ())),
        )
        for name, raw in load(variables)["services"].items()
    }


def dotenv() -> dict[str, str]:
    lines = [line for line in DOTENV.read_text().splitlines() if line and line[0] != "#"]
    return dict(line.split("=", 1) for line in lines)


def health_command(service: Service) -> list[str]:
    """What is run to ask whether it is healthy."""
    kind, *words = service.raw["healthcheck"]["test"]
    return list(words) if kind == "CMD" else shlex.split(f"sh -c {shlex.quote(words[0])}")


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(one, variables) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, variables) for one in value]
    if not isinstance(value, str):
        return value

    def fill(found: re.Match[str]) -> str:
        if found["name"] is None:
            return "$"
        return variables.get(found["name"]) or found["default"] or ""

    return _VARIABLE.sub(fill, value)


def _mount(text: str) -> Mount:
    source, target, *mode = text.split(":")
    return Mount(source, target, mode == ["ro"])
