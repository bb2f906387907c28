"""The packed layout and the file that keeps it."""

import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runtime.model_facts import ModelSource
from runtime.model_source import open_model
from runtime.native import packed_weights
from runtime.native.blocks import Blocks, quantize_rows, stack_blocks
from runtime.native.packed_weights import (
    TILE_ROWS,
    PackedWeights,
    load_packed_weights,
    pack,
    pack_gate_up,
    packed_path,
    unpack,
    unpack_gate_up,
)
from tests.tiny_gguf import write_tiny_gguf

PREAMBLE_LEN = 16  # magic and length of the header
MAGNITUDES = (0.0, 1e-30, 1e-12, 1e-3, 1.0, 1e3, 1e12, 1e30)
_SEEDS = st.integers(0, 2**31)


@st.composite
def random_blocks(
    draw: st.DrawFn, *, num_rows: int | None = None, bits: int | None = None
) -> Blocks:
    """Scales and minima of up to three very different magnitudes in one matrix."""
    bits = bits or draw(st.sampled_from((4, 8)))
    shape = (num_rows or draw(st.integers(1, 70)), draw(st.integers(1, 5)))
    generator = torch.Generator().manual_seed(draw(_SEEDS))
    levels = torch.randint(0, 2**bits, (*shape, 32), generator=generator, dtype=torch.uint8)
    magnitudes = draw(st.lists(st.sampled_from(MAGNITUDES), min_size=1, max_size=3))
    choices = torch.tensor(magnitudes)
    chosen = choices[torch.randint(0, len(magnitudes), (2, *shape), generator=generator)]
    scales, minima = chosen * torch.randn(2, *shape, generator=generator)
    return Blocks(bits, levels, scales, minima)


def assert_stored(found: torch.Tensor, expected: torch.Tensor, *, greatest: float) -> None:
    """As float16 keeps it when the greatest number of the matrix is near 2^14: 11 bits, and below
    2^-28 of the greatest, where the small numbers of float16 begin, steps of 2^-38 of it."""
    errors = (found.double() - expected.double()).abs()
    bound = torch.maximum(expected.double().abs() * 2**-11, torch.tensor(greatest * 2**-38))
    assert (errors <= bound.double()).all()


def greatest_of(*blocks: Blocks) -> float:
    return max(float(part.abs().max()) for one in blocks for part in (one.scales, one.minima))


def assert_packed(found: Blocks, expected: Blocks, *, greatest: float) -> None:
    assert torch.equal(found.levels, expected.levels)
    assert_stored(found.scales, expected.scales, greatest=greatest)
    assert_stored(found.minima, expected.minima, greatest=greatest)


@given(blocks=random_blocks())
def test_unpacking_gives_what_was_packed_and_rows_of_zeros(blocks: Blocks) -> None:
    num_rows = blocks.levels.shape[0]
    matrix = pack(blocks)
    found = unpack(matrix)
    assert matrix.num_outputs == -(-num_rows // TILE_ROWS) * TILE_ROWS == found.levels.shape[0]
    assert (matrix.bits, matrix.num_blocks) == (blocks.bits, blocks.levels.shape[1])
    assert_packed(found.rows(torch.arange(num_rows)), blocks, greatest=greatest_of(blocks))
    assert not found.rows(torch.arange(num_rows, matrix.num_outputs)).to_floats().any()


@given(blocks=random_blocks(bits=4))
def test_levels_of_4_bits_can_be_stored_in_8(blocks: Blocks) -> None:
    matrix = pack(replace(blocks, bits=8))
    assert matrix.bits == 8
    found = unpack(matrix).rows(torch.arange(blocks.levels.shape[0]))
    assert_packed(found, blocks, greatest=greatest_of(blocks))


@given(data=st.data(), half=st.integers(1, 70))
def test_gate_and_up_come_back_in_their_order(data: st.DataObject, half: int) -> None:
    blocks = data.draw(random_blocks(num_rows=2 * half))
    matrix = pack_gate_up(blocks)
    assert matrix.num_outputs == 2 * (-(-half // 32) * 32)
    assert_packed(unpack_gate_up(matrix, half), blocks, greatest=greatest_of(blocks))


def test_tiles_of_gate_and_up_alternate() -> None:
    rows = torch.arange(80.0)[:, None].expand(80, 32)  # 40 of gate, 40 of up
    found = unpack(pack_gate_up(quantize_rows(rows))).to_floats()[:, 0].view(-1, TILE_ROWS)
    assert found[0].tolist() == list(range(16))
    assert found[1].tolist() == list(range(40, 56))
    assert found[4].tolist() == [*range(32, 40), *[0] * 8]
    assert found[5].tolist() == [*range(72, 80), *[0] * 8]
    assert not found[6:].any()  # gate and up are filled up to 64 rows each


def test_scales_that_are_halves_already_are_kept_to_the_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    scales, minima = torch.randn(2, 40, 3, generator=generator).half().float()
    levels = torch.randint(0, 16, (40, 3, 32), generator=generator, dtype=torch.uint8)
    blocks = Blocks(4, levels, scales * 2.0**-60, minima * 2.0**-60)
    found = unpack(pack(blocks)).rows(torch.arange(40))
    assert torch.equal(found.to_floats(), blocks.to_floats())


def test_parts_of_4_and_8_bits_are_packed_as_one() -> None:
    generator = torch.Generator().manual_seed(0)
    levels = torch.randint(0, 16, (5, 2, 32), generator=generator, dtype=torch.uint8)
    small = Blocks(4, levels, torch.ones(5, 2), torch.zeros(5, 2))
    large = quantize_rows(torch.randn(20, 64, generator=generator))
    found = unpack(pack(stack_blocks([small, large]))).to_floats()[:25]
    assert torch.equal(found[:5], small.to_floats())
    half_a_step = 2**-11 * (255 * large.scales.max() + large.minima.abs().max())
    assert (found[5:] - large.to_floats()).abs().max() < half_a_step


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelSource:
    """A model, and a cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return open_model(write_tiny_gguf(tmp_path / "tiny.gguf"))


def assert_equal(found: PackedWeights, expected: PackedWeights) -> None:
    assert found.matrices.keys() == expected.matrices.keys()
    assert found.arrays.keys() == expected.arrays.keys()
    for name, matrix in expected.matrices.items():
        other = found.matrices[name]
        assert (other.scale, other.bits) == (matrix.scale, matrix.bits)
        assert torch.equal(other.data, matrix.data)
    for name, array in expected.arrays.items():
        assert torch.equal(found.arrays[name], array)


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_the_file_of_the_first_run_is_read_by_the_next(
    source: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = load_packed_weights(source)
    written = packed_path(source).stat()
    monkeypatch.delattr(packed_weights, "_Packer")  # nothing is packed again
    read = load_packed_weights(source)
    assert_equal(read, made)
    assert packed_path(source).stat().st_mtime_ns == written.st_mtime_ns
    assert [entry.name for entry in packed_path(source).parent.iterdir()] == [
        packed_path(source).name
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux' list of mappings")
def test_a_file_that_was_read_is_mapped(source: ModelSource) -> None:
    load_packed_weights(source)
    assert not is_mapped(packed_path(source))
    read = load_packed_weights(source)
    assert is_mapped(packed_path(source))
    assert all(matrix.data.data_ptr() % 64 == 0 for matrix in read.matrices.values())
    assert all(array.data_ptr() % 64 == 0 for array in read.arrays.values())


def header_of(content: bytes) -> Any:
    (header_len,) = struct.unpack("<Q", content[8:PREAMBLE_LEN])
    return msgspec.json.decode(content[PREAMBLE_LEN : PREAMBLE_LEN + header_len])


def with_header(content: bytes, change: Callable[[Any], None]) -> bytes:
    """The file with a changed header and its data after it, as long as a whole one would be."""
    header = header_of(content)
    data = content[len(content) - header["num_bytes"] :]
    change(header)
    encoded = msgspec.json.encode(header)
    start = PREAMBLE_LEN + len(encoded)
    return (
        content[:8]
        + struct.pack("<Q", len(encoded))
        + encoded
        + bytes(-start % 64)
        + data.ljust(max(0, header["num_bytes"]), b"\0")
    )


def entry_change(kind: str, name: str, **fields: Any) -> Callable[[bytes], bytes]:
    return lambda content: with_header(content, lambda header: header[kind][name].update(fields))


def total_change(num_bytes: int) -> Callable[[bytes], bytes]:
    return lambda content: with_header(content, lambda header: header.update(num_bytes=num_bytes))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut in the preamble": lambda content: content[:11],
    "cut in the header": lambda content: content[:100],
    "cut in the data": lambda content: content[:-1],
    "longer": lambda content: content + bytes(64),
    "foreign": lambda content: b"GGUF" + content[4:],
    "older format": lambda content: b"RGPACK\0\0" + content[8:],
    "endless header": lambda content: content[:8] + b"\xff" * 8 + content[16:],
    "header is no JSON": lambda content: content[:16] + b"\xff" * 20 + content[36:],
    "no data": lambda content: with_header(content, lambda header: header.update(num_bytes=0)),
    "negative size": total_change(-64),
    "offset outside": entry_change("matrices", "embedding", offset=1 << 40),
    "offset negative": entry_change("arrays", "final_norm", offset=-64),
    "offset between": entry_change("matrices", "0.qkv", offset=4),
    "shape outside": entry_change("matrices", "0.qkv", shape=[1 << 30, 2, 576]),
    "shape negative": entry_change("matrices", "0.qkv", shape=[-8, -2, 576]),
    "shape of an array negative": entry_change("arrays", "0.ffn_norm", shape=[-64]),
    "shape empty": entry_change("arrays", "0.ffn_norm", shape=[]),
    "bits": entry_change("matrices", "0.qkv", bits=5),
    "blocks of other bits": entry_change("matrices", "0.qkv", bits=4),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_is_made_again(
    source: ModelSource, damage: Callable[[bytes], bytes]
) -> None:
    made = load_packed_weights(source)
    path = packed_path(source)
    whole = path.read_bytes()
    damaged = damage(whole)
    assert damaged != whole
    path.write_bytes(damaged)
    assert_equal(load_packed_weights(source), made)
    assert path.read_bytes() == whole


def test_a_header_that_is_written_again_as_it_was_is_read(source: ModelSource) -> None:
    """Else the cases above would prove nothing."""
    load_packed_weights(source)
    path = packed_path(source)
    whole = path.read_bytes()
    assert with_header(whole, lambda _: None) == whole


def test_where_nothing_can_be_written_the_weights_are_in_memory(
    source: ModelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load_packed_weights(source)
    (tmp_path / "file").write_bytes(b"in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert_equal(load_packed_weights(source), expected)


def test_a_disk_that_gets_full_leaves_no_part_of_a_file(
    source: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    assert load_packed_weights(source).matrices
    assert list(packed_path(source).parent.iterdir()) == []


def test_what_a_killed_writer_left_is_removed_but_not_what_is_being_written(
    source: ModelSource,
) -> None:
    folder = packed_path(source).parent
    folder.mkdir(parents=True)
    (folder / "killed.part").write_bytes(b"RGPACK")
    with (folder / "writing.part").open("wb") as writing:
        fcntl.flock(writing, fcntl.LOCK_EX)
        load_packed_weights(source)
    assert {entry.name for entry in folder.iterdir()} == {packed_path(source).name, "writing.part"}


def test_weights_that_another_version_looked_up_elsewhere_are_packed_again(
    source: ModelSource,
) -> None:
    """Say, one that did not know a norm's offset yet."""
    written = load_packed_weights(source)
    norm = source.weight_map.final_norm
    shifted = replace(source.weight_map, final_norm=(replace(norm[0], offset=1.0),))
    read = load_packed_weights(replace(source, weight_map=shifted))
    assert torch.equal(read.arrays["final_norm"], written.arrays["final_norm"] + 1)


def test_another_model_has_another_file(source: ModelSource, tmp_path: Path) -> None:
    other = open_model(write_tiny_gguf(tmp_path / "other.gguf", seed=1))
    ours, theirs = load_packed_weights(source), load_packed_weights(other)
    assert packed_path(source) != packed_path(other)
    assert packed_path(source).exists()
    assert packed_path(other).exists()
    assert not torch.equal(ours.matrices["embedding"].data, theirs.matrices["embedding"].data)


def test_other_versions_of_the_same_model_go_when_a_new_one_is_written(
    source: ModelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_model(write_tiny_gguf(tmp_path / "other.gguf", seed=1))
    load_packed_weights(source)
    load_packed_weights(other)
    old = packed_path(source)
    monkeypatch.setattr(packed_weights, "LAYOUT_VERSION", packed_weights.LAYOUT_VERSION + 1)
    load_packed_weights(source)
    left = {entry.name for entry in old.parent.iterdir()}
    assert left == {packed_path(source).name, packed_path(other).name.replace("-v2.", "-v1.")}
    assert not old.exists()


@pytest.mark.timeout(60)  # two interpreters import torch
def test_two_processes_at_once_leave_one_whole_file(source: ModelSource, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from runtime.model_source import open_model\n"
        "from runtime.native.packed_weights import load_packed_weights\n"
        "source = open_model(sys.argv[1])\n"
        "print(len(load_packed_weights(source).matrices))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "tiny.gguf")]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    outputs = {child.communicate()[0] for child in children}
    assert [child.returncode for child in children] == [0, 0]
    read = load_packed_weights(source)
    assert outputs == {f"{len(read.matrices)}\n".encode()}
    assert is_mapped(packed_path(source))
    assert len(list(packed_path(source).parent.iterdir())) == 1
