"""The weights of a model in the native step's layout, and the file that keeps them between runs.

A file is a magic, the length of a JSON header, the header, then the arrays, each at a multiple of
64 bytes; it is memory-mapped, so several processes share it. Its name holds the model's hash and
the version of the layout: a change of either is another file, and a new one takes the place of
those of other versions. Letters as in blocks.py.
"""

import contextlib
import fcntl
import hashlib
import math
import mmap
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from runtime.cache_folder import cache_folder
from runtime.decoder_weights import check_tensors
from runtime.model_facts import ModelSource
from runtime.native.blocks import (
    BLOCK_LEN,
    Blocks,
    exact_part,
    quantize_rows,
    stack_blocks,
)
from runtime.weight_map import LayerMap, MatrixPart, Vector, WeightMap
from runtime.weight_map import Matrix as MatrixMap
from runtime.weight_parts import read_part, read_vector
from runtime.weights import WeightReader, open_weights

LAYOUT_VERSION = 1  # goes up when the same model would be packed into other bytes
TILE_ROWS = 16  # outputs that lie side by side
_MAGIC = b"RGPACK\0\1"
_ALIGNMENT = 64
_PART = ".part"  # ends the name of a file that is being written
# The greatest scale of a matrix is stored near this: far from both ends of float16's range.
_STORED_EXPONENT = 14


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """data: [tiles, B, 64 * bits + 64] uint8 as matmul.h says. Rows are filled up to whole tiles
    with zeros. `scale` multiplies the stored scales and minima."""

    data: Tensor
    scale: float
    bits: int

    @property
    def num_outputs(self) -> int:
        return self.data.shape[0] * TILE_ROWS

    @property
    def num_blocks(self) -> int:
        return self.data.shape[1]


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """By name: `embedding`, `output` (absent where tied), `final_norm`, and for layer i
    `i.<field of LayerMap>`, with `i.ffns.<j>.gate_up` and `.down`. Vectors and routers are float32,
    routers [num_experts, hidden]."""

    matrices: Mapping[str, PackedMatrix]
    arrays: Mapping[str, Tensor]


def load_packed_weights(source: ModelSource) -> PackedWeights:
    """From the file of an earlier run, else made from the model and written for the next. Where
    nothing can be written they are in memory only. Raises: ModelError."""
    reader = open_weights(source)
    check_tensors(reader.shapes, source.weight_map, architecture=source.architecture)
    path, map_digest = packed_path(source), _digest_of(source.weight_map)
    packed = _read(path, map_digest)
    if packed is None:
        packed = _Packer(reader).pack(source.weight_map)
        with contextlib.suppress(OSError):
            _write(path, packed, map_digest)
            _remove_other_versions(path)
    return packed


def packed_path(source: ModelSource) -> Path:
    """Where the packed weights of this model are or will be."""
    return cache_folder() / "weights" / f"{source.content_hash()[:32]}-v{LAYOUT_VERSION}.rgpack"


def _digest_of(weights: WeightMap) -> str:
    """Names which parts of the files are packed, and how: another version may read more of them."""
    parts = (weights.embedding, weights.final_norm, weights.output, weights.layers)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def _remove_other_versions(path: Path) -> None:
    """Of the same model. Who has one mapped keeps it until it ends. Raises: OSError."""
    model_hash, _, _ = path.name.rpartition("-v")
    for other in path.parent.glob(f"{model_hash}-v*.rgpack"):
        if other != path:
            other.unlink(missing_ok=True)


def block_bytes(bits: int) -> int:
    """Of a block in a tile: 16 rows' levels, scales and minima. matmul.h: block_bytes."""
    return 64 * bits + 64


def pack(blocks: Blocks) -> PackedMatrix:
    """The blocks in the layout of matmul.h."""
    bits, blocks = blocks.bits, _fill_tiles(blocks)
    num_tiles, num_blocks = blocks.levels.shape[0] // TILE_ROWS, blocks.levels.shape[1]
    scale = _stored_scale(blocks)
    data = torch.empty(num_tiles, num_blocks, block_bytes(bits), dtype=torch.uint8)
    # [T, 16, B, 8, 4] -> [T, B, 8, 16 * 4]: four neighbouring inputs of each output
    groups = blocks.levels.view(num_tiles, TILE_ROWS, num_blocks, 8, 4).permute(0, 2, 3, 1, 4)
    groups = groups.reshape(num_tiles, num_blocks, 8, 64)
    if bits == 4:
        groups = groups[:, :, 0::2] | (groups[:, :, 1::2] << 4)
    data[..., : 64 * bits] = groups.flatten(2)
    for start, values in ((64 * bits, blocks.scales), (64 * bits + 32, blocks.minima)):
        stored = (values / scale).half().view(num_tiles, TILE_ROWS, num_blocks).transpose(1, 2)
        data[..., start : start + 32] = stored.contiguous().view(torch.uint8)
    return PackedMatrix(data, scale, bits)


def unpack(matrix: PackedMatrix) -> Blocks:
    """The inverse of `pack`, with the rows that were added. Scales as they were stored."""
    num_tiles, num_blocks, bits = *matrix.data.shape[:2], matrix.bits
    groups = matrix.data[..., : 64 * bits].reshape(num_tiles, num_blocks, bits, 64)
    if bits == 4:
        groups = torch.stack((groups & 15, groups >> 4), dim=3).flatten(2, 3)
    levels = groups.reshape(num_tiles, num_blocks, 8, TILE_ROWS, 4).permute(0, 3, 1, 2, 4)
    tails = matrix.data[..., 64 * bits :].contiguous().view(torch.float16).float() * matrix.scale
    scales, minima = (
        part.transpose(1, 2).reshape(-1, num_blocks) for part in torch.split(tails, TILE_ROWS, -1)
    )
    return Blocks(bits, levels.reshape(-1, num_blocks, BLOCK_LEN), scales, minima)


def pack_gate_up(gate_up: Blocks) -> PackedMatrix:
    """gate's rows, then up's -> tiles of gate and up in turn, each filled up to whole blocks of
    the next layer's input, so that both halves of a result come out together."""
    half = gate_up.levels.shape[0] // 2
    padded = -(-half // BLOCK_LEN) * BLOCK_LEN
    order = torch.arange(padded).view(-1, TILE_ROWS)
    order = torch.stack((order, order + padded), dim=1).flatten()
    rows = torch.arange(gate_up.levels.shape[0])
    halves = [_fill_rows(gate_up.rows(part), padded) for part in torch.split(rows, half)]
    return pack(stack_blocks(halves).rows(order))


def unpack_gate_up(matrix: PackedMatrix, ffn_size: int) -> Blocks:
    """The inverse of `pack_gate_up`: gate's rows, then up's, without those that were added."""
    blocks = unpack(matrix)
    order = torch.arange(blocks.levels.shape[0]).view(-1, 2, TILE_ROWS)
    gate, up = order[:, 0].flatten(), order[:, 1].flatten()
    return blocks.rows(torch.cat((gate[:ffn_size], up[:ffn_size])))


def _fill_tiles(blocks: Blocks) -> Blocks:
    return _fill_rows(blocks, -(-blocks.levels.shape[0] // TILE_ROWS) * TILE_ROWS)


def _fill_rows(blocks: Blocks, num_rows: int) -> Blocks:
    """With rows of zeros up to `num_rows`."""
    missing = num_rows - blocks.levels.shape[0]
    pad = torch.nn.functional.pad
    return Blocks(
        blocks.bits,
        pad(blocks.levels, (0, 0, 0, 0, 0, missing)),
        pad(blocks.scales, (0, 0, 0, missing)),
        pad(blocks.minima, (0, 0, 0, missing)),
    )


def _stored_scale(blocks: Blocks) -> float:
    """A power of two, so that dividing by it loses nothing."""
    greatest = max(float(blocks.scales.abs().max()), float(blocks.minima.abs().max()))
    if greatest == 0.0:
        return 1.0
    return float(2.0 ** (torch.frexp(torch.tensor(greatest)).exponent.item() - _STORED_EXPONENT))


# The vectors that a layer may have, by their names in LayerMap.
_VECTORS = (
    "attention_norm", "ffn_norm", "qkv_bias", "attention_output_bias", "q_norm", "k_norm",
    "post_attention_norm", "post_ffn_norm",
)  # fmt: skip


class _Packer:
    """Reads what a WeightMap names and packs it."""

    def __init__(self, reader: WeightReader) -> None:
        self._reader = reader

    def pack(self, weights: WeightMap) -> PackedWeights:
        matrices = {"embedding": pack(self._blocks(weights.embedding))}
        arrays = {"final_norm": read_vector(self._reader, weights.final_norm)}
        if weights.output is not None:
            matrices["output"] = pack(self._blocks(weights.output))
        for index, layer in enumerate(weights.layers):
            matrices |= {f"{index}.{name}": one for name, one in self._layer(layer)}
            arrays |= {f"{index}.{name}": one for name, one in self._arrays(layer)}
        return PackedWeights(matrices, arrays)

    def _layer(self, layer: LayerMap) -> Iterator[tuple[str, PackedMatrix]]:
        yield "qkv", pack(self._blocks(layer.qkv))
        yield "attention_output", pack(self._blocks(layer.attention_output))
        for number, ffn in enumerate(layer.ffns):
            yield f"ffns.{number}.gate_up", pack_gate_up(self._blocks(ffn.gate_up))
            yield f"ffns.{number}.down", pack(self._blocks(ffn.down))

    def _arrays(self, layer: LayerMap) -> Iterator[tuple[str, Tensor]]:
        for name in _VECTORS:
            parts: Vector | None = getattr(layer, name)
            if parts is not None:
                yield name, read_vector(self._reader, parts)
        if layer.router is not None:
            read = [read_part(self._reader, part).float() for part in layer.router]
            yield "router", torch.cat(read)

    def _blocks(self, parts: MatrixMap) -> Blocks:
        return stack_blocks([self._part(part) for part in parts])

    def _part(self, part: MatrixPart) -> Blocks:
        blocks = exact_part(self._reader, part)
        return quantize_rows(read_part(self._reader, part)) if blocks is None else blocks


class _MatrixEntry(msgspec.Struct, frozen=True):
    offset: int
    shape: tuple[int, int, int]
    scale: float
    bits: int


class _ArrayEntry(msgspec.Struct, frozen=True):
    offset: int
    shape: tuple[int, ...]


class _Header(msgspec.Struct, frozen=True):
    """Offsets count from the first multiple of 64 after the header."""

    map_digest: str
    num_bytes: int
    matrices: dict[str, _MatrixEntry]
    arrays: dict[str, _ArrayEntry]


def _write(path: Path, packed: PackedWeights, map_digest: str) -> None:
    """Written beside and renamed, so that nobody sees a part of it. Raises: OSError."""
    offset = 0
    matrices, arrays = {}, {}
    for name, matrix in packed.matrices.items():
        shape = (matrix.data.shape[0], matrix.data.shape[1], matrix.data.shape[2])
        matrices[name] = _MatrixEntry(offset, shape, matrix.scale, matrix.bits)
        offset += _aligned(matrix.data.numel())
    for name, array in packed.arrays.items():
        arrays[name] = _ArrayEntry(offset, tuple(array.shape))
        offset += _aligned(array.numel() * 4)
    header = msgspec.json.encode(_Header(map_digest, offset, matrices, arrays))
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path.parent)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=_PART, delete=False) as file:
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            start = file.write(_MAGIC + struct.pack("<Q", len(header)) + header)
            file.write(bytes(_aligned(start) - start))
            tensors = (*(m.data for m in packed.matrices.values()), *packed.arrays.values())
            for tensor in tensors:
                written = file.write(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
                file.write(bytes(_aligned(written) - written))
            # Before the name: after a power failure a whole file must not be one of zeros.
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _remove_leftovers(folder: Path) -> None:
    """Parts whose writers were killed: nobody holds their locks."""
    for part in folder.glob(f"*{_PART}"):
        with contextlib.suppress(OSError), part.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()


def _read(path: Path, map_digest: str) -> PackedWeights | None:
    """None where there is no file, or none that is whole and of this weight map."""
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        preamble_len = len(_MAGIC) + 8
        if mapped[: len(_MAGIC)] != _MAGIC:
            return None
        (header_len,) = struct.unpack("<Q", mapped[len(_MAGIC) : preamble_len])
        encoded = mapped[preamble_len : preamble_len + header_len]
        header = msgspec.json.decode(encoded, type=_Header)
    except (OSError, ValueError, struct.error):
        return None
    start = _aligned(preamble_len + header_len)
    is_whole = len(mapped) == start + header.num_bytes and _is_sound(header)
    if not is_whole or header.map_digest != map_digest:
        return None
    data = torch.frombuffer(mapped, dtype=torch.uint8, offset=start)
    return PackedWeights(
        matrices={
            name: PackedMatrix(
                _view(data, entry.offset, torch.uint8, entry.shape), entry.scale, entry.bits
            )
            for name, entry in header.matrices.items()
        },
        arrays={
            name: _view(data, entry.offset, torch.float32, entry.shape)
            for name, entry in header.arrays.items()
        },
    )


def _is_sound(header: _Header) -> bool:
    """Whether all lies inside the file and has a shape that the native step can read."""
    entries: list[tuple[_MatrixEntry | _ArrayEntry, int]] = [
        *((entry, 1) for entry in header.matrices.values()),
        *((entry, 4) for entry in header.arrays.values()),
    ]
    return all(
        min(entry.shape, default=0) > 0
        and entry.offset % _ALIGNMENT == 0
        and 0 <= entry.offset <= header.num_bytes - math.prod(entry.shape) * item_bytes
        for entry, item_bytes in entries
    ) and all(
        matrix.bits in (4, 8) and matrix.shape[2] == block_bytes(matrix.bits)
        for matrix in header.matrices.values()
    )


def _view(data: Tensor, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    num_bytes = math.prod(shape) * dtype.itemsize
    return data[offset : offset + num_bytes].view(dtype).view(shape)


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
