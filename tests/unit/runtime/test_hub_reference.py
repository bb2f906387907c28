"""What is a hub id and what a path, and what is loaded for each."""

import subprocess
import sys
from pathlib import Path

import pytest

from runtime.hub_reference import HubReference, parse_hub_reference
from runtime.model_source import hub_name, locate_model


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/name", HubReference("org/name", None, None)),
        ("Org-1/na.me_2", HubReference("Org-1/na.me_2", None, None)),
        ("org/name@main", HubReference("org/name", None, "main")),
        ("org/name@refs/pr/3", HubReference("org/name", None, "refs/pr/3")),
        ("org/name/a-Q4.gguf", HubReference("org/name", "a-Q4.gguf", None)),
        ("org/name/sub/a.gguf@v1", HubReference("org/name", "sub/a.gguf", "v1")),
        ("org/name.gguf/a.gguf", HubReference("org/name.gguf", "a.gguf", None)),
    ],
)
def test_a_hub_id_is_read(text: str, expected: HubReference) -> None:
    assert parse_hub_reference(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        "name", "model.gguf", "models/a.gguf", "/org/name", "./org/name", "../org/name", "~/name",
        "org/name/", "org/name/file.safetensors", "org/name@", "org/na me", "a/b/c", "",
        "org//name",
        "C:\\models\\a.gguf", "/srv/models/a.gguf", "org/name\n",
        "org/name/../../a.gguf", "org/name/sub/../a.gguf@v1", "org/name@../../main",
        "org/name@a/..",
    ],
)  # fmt: skip
def test_everything_else_is_a_path(text: str) -> None:
    assert parse_hub_reference(text) is None
    assert locate_model(text) == Path(text).expanduser()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/Name", "org/Name"),
        ("org/Name@v1", "org/Name"),
        ("org/name/Sub/A-Q4.gguf@v1", "a-q4"),
        ("models/a.gguf", None),
    ],
)
def test_a_hub_model_is_served_under_its_own_name(text: str, expected: str | None) -> None:
    assert hub_name(text) == expected


def test_a_folder_that_exists_is_no_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("org/name").mkdir(parents=True)
    assert locate_model("org/name") == Path("org/name")
    assert hub_name("org/name") is None


def test_the_hubs_library_is_not_loaded_for_a_path() -> None:
    program = (
        "import sys, gateway.cli, gateway.serve\n"
        "from runtime.model_source import locate_model\n"
        "locate_model('models/a.gguf')\n"
        "sys.exit('huggingface_hub' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
