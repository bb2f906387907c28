"""The C interface of a built native step: its structures in ctypes, and a loaded library.

The fields are those of the structures in the headers, in their order.
"""

import ctypes
import struct
from ctypes import POINTER, c_float, c_int32, c_void_p
from pathlib import Path
from typing import Any

from runtime.errors import RuntimePackageError

INTERFACE_VERSION = 3


class Matrix(ctypes.Structure):
    """matmul.h: struct Matrix."""

    _fields_ = [
        ("data", c_void_p),
        ("scale", c_float),
        ("bits", c_int32),
        ("num_outputs", c_int32),
        ("num_blocks", c_int32),
    ]


class PagedKv(ctypes.Structure):
    """attention.h: struct PagedKv."""

    _fields_ = [
        ("keys", c_void_p),
        ("values", c_void_p),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("page_size", c_int32),
    ]


class FeedForward(ctypes.Structure):
    """model.h: struct FeedForward."""

    _fields_ = [("gate_up", Matrix), ("down", Matrix)]


class Layer(ctypes.Structure):
    """model.h: struct Layer."""

    _fields_ = [
        ("qkv", Matrix),
        ("attention_output", Matrix),
        ("ffns", POINTER(FeedForward)),
        ("attention_norm", c_void_p),
        ("ffn_norm", c_void_p),
        ("qkv_bias", c_void_p),
        ("attention_output_bias", c_void_p),
        ("q_norm", c_void_p),
        ("k_norm", c_void_p),
        ("post_attention_norm", c_void_p),
        ("post_ffn_norm", c_void_p),
        ("router", c_void_p),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("num_rotary", c_int32),
        ("window", c_int32),
        ("has_experts", c_int32),
    ]


class Model(ctypes.Structure):
    """model.h: struct Model."""

    _fields_ = [
        ("layers", POINTER(Layer)),
        ("embedding", Matrix),
        ("output", Matrix),
        ("final_norm", c_void_p),
        ("num_layers", c_int32),
        ("hidden_size", c_int32),
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("ffn_size", c_int32),
        ("vocab_size", c_int32),
        ("page_size", c_int32),
        ("is_gelu", c_int32),
        ("num_experts", c_int32),
        ("num_used_experts", c_int32),
        ("expert_ffn_size", c_int32),
        ("normalize_experts", c_int32),
        ("norm_eps", c_float),
        ("attention_scale", c_float),
        ("embedding_scale", c_float),
        ("attention_softcap", c_float),
        ("logit_softcap", c_float),
    ]


class Batch(ctypes.Structure):
    """attention_plan.h: struct Batch."""

    _fields_ = [
        ("num_rows", c_int32),
        ("num_tokens", c_int32),
        ("num_sampled", c_int32),
        ("token_ids", c_void_p),
        ("row_tokens", c_void_p),
        ("row_starts", c_void_p),
        ("row_pages", c_void_p),
        ("pages", c_void_p),
        ("sampled", c_void_p),
        ("logits", c_void_p),
    ]


class Choice(ctypes.Structure):
    """choose.h: struct Choice."""

    _fields_ = [
        ("mask", c_void_p),
        ("temperature", c_float),
        ("key", c_int32 * 2),
        ("top_k", c_int32),
        ("top_p", c_float),
        ("min_p", c_float),
    ]


class Scores(ctypes.Structure):
    """score.h: struct Scores."""

    _fields_ = [
        ("num_scored", c_int32),
        ("num_best", c_int32),
        ("max_rows", c_int32),
        ("places", c_void_p),
        ("token_ids", c_void_p),
        ("own", c_void_p),
        ("best", c_void_p),
        ("best_ids", c_void_p),
    ]


class LibraryError(RuntimePackageError):
    """A built library that cannot be loaded or is of another version."""


def load_library(path: Path) -> Any:
    """The library with its functions declared. Raises: LibraryError."""
    try:
        if _is_cut_off(path):  # using it would end the process with SIGBUS
            raise LibraryError(f"{path}: is cut off")
        library = ctypes.CDLL(str(path))
        found = library.rg_interface_version()
    except (OSError, AttributeError) as error:
        raise LibraryError(f"{path}: cannot be loaded ({error})") from None
    if found != INTERFACE_VERSION:
        raise LibraryError(f"{path}: has interface version {found}, not {INTERFACE_VERSION}")
    for name, result, arguments in _FUNCTIONS:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _is_cut_off(path: Path) -> bool:
    """Whether it is an ELF file that ends before its table of sections, which linkers write last.
    The offsets are those of Elf64_Ehdr (elf(5)): e_shoff, e_shentsize, e_shnum. Raises: OSError."""
    with path.open("rb") as file:
        header = file.read(64)
    if len(header) < 64 or not header.startswith(b"\x7fELF\x02"):
        return False  # the loader says what it is
    order = "<" if header[5] == 1 else ">"
    (table,) = struct.unpack_from(f"{order}Q", header, 0x28)
    entry_len, num_entries = struct.unpack_from(f"{order}HH", header, 0x3A)
    end: int = table + entry_len * num_entries
    return path.stat().st_size < end


_FUNCTIONS: tuple[tuple[str, Any, list[Any]], ...] = (
    ("rg_create", c_void_p, [POINTER(Model), c_int32]),
    ("rg_destroy", None, [c_void_p]),
    ("rg_step", c_int32, [c_void_p, POINTER(Batch)]),
    ("rg_score", c_int32, [c_void_p, POINTER(Scores)]),
    ("rg_copy_slots", None, [POINTER(PagedKv), c_int32, c_int32, c_int32]),
    ("rg_write_pages", None, [POINTER(PagedKv), c_void_p, c_int32, c_void_p, c_void_p]),
    ("rg_read_pages", None, [POINTER(PagedKv), c_void_p, c_int32, c_void_p, c_void_p]),
    ("rg_choose", c_int32, [c_void_p, c_int32, c_int32, POINTER(Choice), c_void_p, c_void_p]),
    ("rg_unpack_row", None, [POINTER(Matrix), c_int32, c_void_p]),
    ("rg_multiply", c_int32, [POINTER(Matrix), c_void_p, c_int32, c_void_p]),
)
