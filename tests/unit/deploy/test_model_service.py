"""deploy/fetch_model.py and deploy/build_libraries.py: what an image needs before it serves."""

from pathlib import Path

import pytest

from deploy import build_libraries, fetch_model
from runtime.native.build import BuildError
from runtime.native.instruction_sets import INSTRUCTION_SETS, InstructionSet
from tests.tiny_model import write_tiny_model


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "radixgate"


def test_the_model_is_found_and_the_libraries_are_linked(
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = write_tiny_model(tmp_path / "model")
    libraries = tmp_path / "image/native"
    libraries.mkdir(parents=True)
    monkeypatch.setenv("RADIXGATE_MODEL", str(model))
    monkeypatch.setattr(fetch_model, "LIBRARIES", libraries)
    assert fetch_model.main() == 0
    assert capsys.readouterr().out == f"radixgate: the model is at {model}\n"
    assert (cache / "native").resolve() == libraries


def test_a_link_into_an_image_that_is_gone_is_made_anew(tmp_path: Path) -> None:
    libraries = tmp_path / "native"
    libraries.mkdir()
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "native").symlink_to(tmp_path / "gone")
    fetch_model.link_libraries(libraries, cache)
    assert (cache / "native").resolve() == libraries


def test_a_folder_with_libraries_of_its_own_stays(tmp_path: Path) -> None:
    (tmp_path / "native").mkdir()
    (tmp_path / "cache/native").mkdir(parents=True)
    fetch_model.link_libraries(tmp_path / "native", tmp_path / "cache")
    assert not (tmp_path / "cache/native").is_symlink()


def test_outside_of_an_image_nothing_is_linked(tmp_path: Path) -> None:
    fetch_model.link_libraries(tmp_path / "native", tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("variable", "value", "code"),
    [("RADIXGATE_MODEL", "/nowhere/at/all", 1), ("RADIXGATE_PORT", "many", 2)],
)
def test_what_is_wrong_is_one_line_and_a_code(
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    value: str,
    code: int,
) -> None:
    monkeypatch.setenv(variable, value)
    assert fetch_model.main() == code
    assert value in capsys.readouterr().err
    assert not cache.exists()


def test_x86_gets_every_instruction_set_and_others_the_plain_one() -> None:
    assert build_libraries.buildable("x86_64") == list(INSTRUCTION_SETS)
    assert [one.name for one in build_libraries.buildable("aarch64")] == ["plain"]


def test_each_library_is_built_into_the_folder(
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def build(instruction_set: InstructionSet) -> Path:
        library = cache / f"step-{instruction_set.name}.so"
        cache.mkdir(exist_ok=True)
        library.write_text(instruction_set.name)
        return library

    monkeypatch.setattr(build_libraries, "build_library", build)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    folder = tmp_path / "libraries"
    assert build_libraries.main([str(folder)]) == 0
    assert {file.read_text() for file in folder.iterdir()} == {s.name for s in INSTRUCTION_SETS}
    assert capsys.readouterr().out.count("built") == len(INSTRUCTION_SETS)


def test_one_that_cannot_be_built_ends_the_build(
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def build(_: InstructionSet) -> Path:
        raise BuildError("there is no compiler")

    monkeypatch.setattr(build_libraries, "build_library", build)
    assert build_libraries.main([str(tmp_path / "libraries")]) == 1
    assert capsys.readouterr().err == "radixgate: there is no compiler\n"
    assert not cache.exists()


def test_a_wrong_call_is_told_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert build_libraries.main([]) == 2
    assert "FOLDER" in capsys.readouterr().err
