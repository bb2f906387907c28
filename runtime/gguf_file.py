"""Reads the header of a GGUF file over mmap: typed metadata and where each tensor lies.

Knows the container, not what is in it. No torch, no numpy; nothing is read beyond the header
until a tensor's bytes are asked for. Format: the GGUF specification, versions 2 and 3.
"""

import itertools
import math
import mmap
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runtime.errors import ModelError
from runtime.gguf_types import TENSOR_TYPES, TensorType

MetadataValue = int | float | bool | str | list[int] | list[float] | list[bool] | list[str]

MAGIC = b"GGUF"
SUPPORTED_VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
MIN_ENTRY_BYTES = 12  # the smallest metadata or tensor entry is longer than this

_STRING, _ARRAY = 8, 9
_SCALAR_FORMATS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies. `shape` is row-major (the last dimension is contiguous);
    `offset` counts from the start of the file."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


class GgufFile:
    """An open GGUF file. The mapping is private (copy on write): nobody changes the file."""

    def __init__(
        self,
        path: Path,
        buffer: mmap.mmap,
        *,
        metadata: dict[str, MetadataValue],
        tensors: dict[str, TensorInfo],
    ) -> None:
        self.path = path
        self.buffer = buffer
        self.metadata = metadata
        self.tensors = tensors

    @classmethod
    def open(cls, path: Path) -> "GgufFile":
        """Raises: ModelError for a file that is missing, damaged or of another kind."""
        buffer = _map_file(path)
        try:
            metadata, tensors = _parse(buffer)
            _refuse_part(metadata)
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from None
        return cls(path, buffer, metadata=metadata, tensors=tensors)

    def tensor_bytes(self, info: TensorInfo) -> memoryview:
        """The tensor's stored bytes, without a copy."""
        return memoryview(self.buffer)[info.offset : info.offset + info.num_bytes]


def _refuse_part(metadata: dict[str, MetadataValue]) -> None:
    num_parts = metadata.get("split.count", 1)
    if isinstance(num_parts, int) and num_parts > 1:
        raise ModelError(
            f"is one of {num_parts} parts of a model; `llama-gguf-split --merge` of llama.cpp makes"
            " one file of them"
        )


def _map_file(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError:
        raise ModelError(f"{path}: the file is empty; download it again") from None


def _parse(buffer: mmap.mmap) -> tuple[dict[str, MetadataValue], dict[str, TensorInfo]]:
    cursor = _Cursor(buffer)
    num_tensors, num_entries = _read_preamble(cursor)
    try:
        metadata = {}
        for _ in range(num_entries):
            key = cursor.string()
            metadata[key] = cursor.value()
        raw_tensors = [_read_tensor_entry(cursor) for _ in range(num_tensors)]
    except UnicodeDecodeError:
        raise ModelError("the header is damaged (text that is not UTF-8)") from None
    return metadata, _place_tensors(cursor, metadata=metadata, entries=raw_tensors)


def _read_preamble(cursor: "_Cursor") -> tuple[int, int]:
    magic = cursor.take(4)
    if magic != MAGIC:
        raise ModelError(f"not a GGUF file (it begins with {magic!r}, not {MAGIC!r})")
    version = cursor.scalar("I")
    if version not in SUPPORTED_VERSIONS:
        raise ModelError(f"GGUF version {version} is not supported (only 2 and 3, little endian)")
    num_tensors, num_entries = cursor.scalar("Q"), cursor.scalar("Q")
    if (num_tensors + num_entries) * MIN_ENTRY_BYTES > len(cursor.buffer):
        raise ModelError(
            f"the header is damaged ({num_tensors} tensors and {num_entries} metadata entries"
            f" do not fit {len(cursor.buffer)} bytes)"
        )
    return int(num_tensors), int(num_entries)


@dataclass(frozen=True, slots=True)
class _TensorEntry:
    name: str
    shape: tuple[int, ...]
    type_number: int
    relative_offset: int


def _read_tensor_entry(cursor: "_Cursor") -> _TensorEntry:
    name = cursor.string()
    num_dimensions = int(cursor.scalar("I"))
    if num_dimensions > MAX_DIMENSIONS:
        raise ModelError(f"tensor {name!r} has {num_dimensions} dimensions (at most 4)")
    dimensions = tuple(int(cursor.scalar("Q")) for _ in range(num_dimensions))
    return _TensorEntry(
        name=name,
        shape=dimensions[::-1],  # GGUF writes the contiguous dimension first
        type_number=int(cursor.scalar("I")),
        relative_offset=int(cursor.scalar("Q")),
    )


def _place_tensors(
    cursor: "_Cursor", *, metadata: dict[str, MetadataValue], entries: list[_TensorEntry]
) -> dict[str, TensorInfo]:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0 or alignment % 8:
        raise ModelError(f"general.alignment is {alignment!r}, a multiple of 8 is expected")
    data_start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for entry in entries:
        if entry.name in tensors:
            raise ModelError(f"tensor {entry.name!r} is listed twice")
        info = _place_tensor(entry, data_start)
        if entry.relative_offset % alignment:
            raise ModelError(f"tensor {info.name!r} does not begin at a multiple of {alignment}")
        if info.offset + info.num_bytes > len(cursor.buffer):
            raise ModelError(
                f"tensor {info.name!r} ends at byte {info.offset + info.num_bytes}, after the end"
                f" of the file ({len(cursor.buffer)} bytes); the file is truncated, download it"
                " again"
            )
        tensors[entry.name] = info
    _refuse_overlaps(tensors.values())
    return tensors


def _refuse_overlaps(tensors: Iterable[TensorInfo]) -> None:
    in_file = sorted(tensors, key=lambda info: info.offset)
    for first, second in itertools.pairwise(in_file):
        if second.offset < first.offset + first.num_bytes:
            raise ModelError(
                f"tensors {first.name!r} and {second.name!r} lie over each other; the header is"
                " damaged"
            )


def _place_tensor(entry: _TensorEntry, data_start: int) -> TensorInfo:
    tensor_type = TENSOR_TYPES.get(entry.type_number)
    if tensor_type is None:
        raise ModelError(f"tensor {entry.name!r} has unknown type number {entry.type_number}")
    if 0 in entry.shape:
        raise ModelError(f"tensor {entry.name!r} of shape {entry.shape} holds no weights")
    row_len = entry.shape[-1] if entry.shape else 1
    if row_len % tensor_type.block_len:
        raise ModelError(
            f"tensor {entry.name!r}: rows of {row_len} weights are no multiple of the"
            f" {tensor_type.name} block of {tensor_type.block_len}"
        )
    num_blocks = math.prod(entry.shape) // tensor_type.block_len
    return TensorInfo(
        name=entry.name,
        type=tensor_type,
        shape=entry.shape,
        offset=data_start + entry.relative_offset,
        num_bytes=num_blocks * tensor_type.block_bytes,
    )


class _Cursor:
    """Reads little-endian values one after the other, never past the end."""

    def __init__(self, buffer: mmap.mmap) -> None:
        self.buffer = buffer
        self.position = 0

    def take(self, num_bytes: int) -> bytes:
        end = self.position + num_bytes
        if end > len(self.buffer):
            raise ModelError("the header is cut off; the file is truncated, download it again")
        taken = self.buffer[self.position : end]
        self.position = end
        return taken

    def scalar(self, letter: str) -> int | float | bool:
        layout = "<" + letter
        value: int | float | bool = struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        return value

    def string(self) -> str:
        return self.take(int(self.scalar("Q"))).decode()

    def value(self) -> MetadataValue:
        return self._typed_value(int(self.scalar("I")))

    def _typed_value(self, type_number: int) -> MetadataValue:
        if type_number == _STRING:
            return self.string()
        if type_number == _ARRAY:
            return self._array()
        return self.scalar(self._scalar_format(type_number))

    def _scalar_format(self, type_number: int) -> str:
        letter = _SCALAR_FORMATS.get(type_number)
        if letter is None:
            raise ModelError(f"the header is damaged (unknown value type {type_number})")
        return letter

    def _array(self) -> MetadataValue:
        element_type, count = int(self.scalar("I")), int(self.scalar("Q"))
        if element_type == _STRING:
            return self._strings(count)
        layout = f"<{count}{self._scalar_format(element_type)}"
        if count > len(self.buffer):
            raise ModelError(f"the header is damaged (an array of {count} values)")
        return list(struct.unpack(layout, self.take(struct.calcsize(layout))))

    def _strings(self, count: int) -> list[str]:
        """The hot loop of opening a model (a vocabulary has 10^5 strings): no method calls."""
        buffer, position, end = self.buffer, self.position, len(self.buffer)
        if count * 8 > end:
            raise ModelError(f"the header is damaged (an array of {count} strings)")
        read_length = struct.Struct("<Q").unpack_from
        strings = []
        for _ in range(count):
            if position + 8 > end:
                raise ModelError("the header is cut off; the file is truncated, download it again")
            start = position + 8
            position = start + read_length(buffer, position)[0]
            if position > end:
                raise ModelError("the header is cut off; the file is truncated, download it again")
            strings.append(buffer[start:position].decode())
        self.position = position
        return strings
