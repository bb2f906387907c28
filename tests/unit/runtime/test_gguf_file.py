"""The GGUF header parser: what it reads, and one line for every kind of damage."""

import struct
from pathlib import Path

import gguf
import pytest

from runtime.errors import ModelError
from runtime.gguf_file import GgufFile
from tests.tiny_gguf import TOKENS, tensor_shapes, write_tiny_gguf


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def damaged(file: Path, tmp_path: Path, *, at: int, new: bytes) -> Path:
    content = bytearray(file.read_bytes())
    content[at : at + len(new)] = new
    copy = tmp_path / "damaged.gguf"
    copy.write_bytes(content)
    return copy


def test_metadata_is_read_with_its_types(file: Path) -> None:
    metadata = GgufFile.open(file).metadata
    assert metadata["general.architecture"] == "llama"
    assert metadata["llama.block_count"] == 2
    assert metadata["llama.rope.freq_base"] == 10000.0
    assert metadata["tokenizer.ggml.add_bos_token"] is False
    assert metadata["tokenizer.ggml.tokens"] == list(TOKENS)
    assert metadata["tokenizer.ggml.token_type"] == [3, 3, 3, *[1] * (len(TOKENS) - 3)]


def test_tensors_lie_where_the_gguf_package_finds_them(file: Path) -> None:
    ours = GgufFile.open(file)
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(str(file)).tensors}
    assert {name: info.shape for name, info in ours.tensors.items()} == tensor_shapes()
    for name, info in ours.tensors.items():
        assert bytes(ours.tensor_bytes(info)) == theirs[name].data.tobytes()
        assert info.type.name == theirs[name].tensor_type.name


def test_a_file_cut_anywhere_is_one_line_of_error(file: Path, tmp_path: Path) -> None:
    content = file.read_bytes()
    copy = tmp_path / "cut.gguf"
    for length in (*range(1, 3000, 37), len(content) // 2, len(content) - 1):
        copy.write_bytes(content[:length])
        with pytest.raises(ModelError) as caught:
            GgufFile.open(copy)
        assert str(copy) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_empty_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(ModelError, match="is empty"):
        GgufFile.open(tmp_path / "empty.gguf")


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        GgufFile.open(tmp_path / "nowhere.gguf")


def test_another_kind_of_file_is_named_by_its_first_bytes(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"not a GGUF file .*b'PK\\x03\\x04'"):
        GgufFile.open(damaged(file, tmp_path, at=0, new=b"PK\x03\x04"))


@pytest.mark.parametrize("version", [0, 1, 4, 0x03000000])
def test_other_versions_are_refused(file: Path, tmp_path: Path, version: int) -> None:
    with pytest.raises(ModelError, match=f"version {version} is not supported"):
        GgufFile.open(damaged(file, tmp_path, at=4, new=struct.pack("<I", version)))


@pytest.mark.parametrize("at", [8, 16])
def test_absurd_counts_are_refused_at_once(file: Path, tmp_path: Path, at: int) -> None:
    with pytest.raises(ModelError, match="the header is damaged"):
        GgufFile.open(damaged(file, tmp_path, at=at, new=struct.pack("<Q", 2**62)))


def test_an_absurd_array_length_is_refused_at_once(file: Path, tmp_path: Path) -> None:
    key = b"tokenizer.ggml.tokens"
    at = file.read_bytes().index(key) + len(key) + 8  # value type and element type come first
    with pytest.raises(ModelError, match="the header is damaged"):
        GgufFile.open(damaged(file, tmp_path, at=at, new=struct.pack("<Q", 2**61)))


def test_an_absurd_string_length_is_refused_at_once(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cut off"):
        GgufFile.open(damaged(file, tmp_path, at=24, new=struct.pack("<Q", 2**63)))


def test_text_that_is_not_utf8_is_refused(file: Path, tmp_path: Path) -> None:
    at = file.read_bytes().index(b"general.architecture")
    with pytest.raises(ModelError, match="not UTF-8"):
        GgufFile.open(damaged(file, tmp_path, at=at, new=b"\xff"))


def test_an_unknown_storage_type_is_named(file: Path, tmp_path: Path) -> None:
    name = b"output_norm.weight"
    at = file.read_bytes().index(name) + len(name) + 4 + 8  # dimensions come first
    with pytest.raises(ModelError, match="'output_norm.weight' has unknown type number 99"):
        GgufFile.open(damaged(file, tmp_path, at=at, new=struct.pack("<I", 99)))


# Where the entry of a tensor of one dimension has its length and its offset, after its name.
LENGTH, OFFSET = 4, 4 + 8 + 4


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (LENGTH, 0, "holds no weights"),
        (LENGTH, 2**62, "after the end of the file"),
        (OFFSET, 2**62, "after the end of the file"),
        (OFFSET, 0, "'token_embd.weight' and 'output_norm.weight' lie over each other"),
        (OFFSET, 4, "does not begin at a multiple of 32"),
    ],
)
def test_a_tensor_that_cannot_lie_there_is_named(
    file: Path, tmp_path: Path, field: int, value: int, message: str
) -> None:
    name = b"output_norm.weight"
    at = file.read_bytes().index(name) + len(name) + field
    with pytest.raises(ModelError, match=message):
        GgufFile.open(damaged(file, tmp_path, at=at, new=struct.pack("<Q", value)))


def test_a_tensor_listed_twice_is_named(file: Path, tmp_path: Path) -> None:
    at = file.read_bytes().index(b"blk.1.ffn_up.weight")
    with pytest.raises(ModelError, match=r"'blk\.0\.ffn_up\.weight' is listed twice"):
        GgufFile.open(damaged(file, tmp_path, at=at, new=b"blk.0"))


def test_one_part_of_a_split_model_says_how_to_join_it(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "a-00001-of-00002.gguf", metadata={"split.count": 2})
    with pytest.raises(ModelError, match="is one of 2 parts of a model"):
        GgufFile.open(path)
    assert GgufFile.open(write_tiny_gguf(path, metadata={"split.count": 1})).tensors


def test_an_odd_alignment_is_refused(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "odd.gguf", metadata={"general.alignment": 32})
    key = b"general.alignment"
    at = path.read_bytes().index(key) + len(key) + 4
    with pytest.raises(ModelError, match="general.alignment is 12, a multiple of 8 is expected"):
        GgufFile.open(damaged(path, tmp_path, at=at, new=struct.pack("<I", 12)))


def test_reading_changes_nothing_in_the_file(file: Path) -> None:
    before = file.read_bytes()
    opened = GgufFile.open(file)
    opened.tensor_bytes(opened.tensors["output_norm.weight"])[0] = 1
    assert file.read_bytes() == before
