"""No setting is accepted and then not looked at."""

import re
from pathlib import Path

import pytest

from gateway.settings import Settings
from runtime.config import RuntimeConfig
from runtime.supervisor import SupervisorPolicy

ROOT = Path(__file__).resolve().parents[3]


def source_of(package: str) -> str:
    return "\n".join(path.read_text() for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize(
    ("package", "owner", "names"),
    [
        ("gateway", "settings", tuple(Settings.model_fields)),
        ("runtime", "config", RuntimeConfig.__struct_fields__),
        ("runtime", "policy", tuple(SupervisorPolicy.__dataclass_fields__)),
    ],
)
def test_every_setting_is_read(package: str, owner: str, names: tuple[str, ...]) -> None:
    source = source_of(package)
    assert len(names) > 5
    assert [name for name in names if not re.search(rf"\b_?{owner}\.{name}\b", source)] == []
