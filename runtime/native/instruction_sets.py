"""The instruction sets that the native step can be built for, and which one a CPU gets."""

from collections.abc import Set
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """`cpu_flags`: what the CPU must have, in the kernel's names; `compiler_flags`: GCC's."""

    name: str
    cpu_flags: frozenset[str]
    compiler_flags: tuple[str, ...]


_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni")
_AVX2_FLAGS = frozenset({"avx2", "fma", "f16c"})
_AVX512_FLAGS = _AVX2_FLAGS | {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"}

# The best first.
INSTRUCTION_SETS = (
    InstructionSet("avx512_bf16", _AVX512_FLAGS | {"avx512_bf16"}, (*_AVX512, "-mavx512bf16")),
    InstructionSet("avx512_vnni", _AVX512_FLAGS, _AVX512),
    InstructionSet("avx_vnni", _AVX2_FLAGS | {"avx_vnni"}, (*_AVX2, "-mavxvnni")),
    InstructionSet("avx2", _AVX2_FLAGS, _AVX2),
    InstructionSet("plain", frozenset(), ()),
)


def choose_instruction_set(cpu_flags: Set[str]) -> InstructionSet:
    """The best that a CPU with these flags can run; without any, the plain one."""
    return next(one for one in INSTRUCTION_SETS if one.cpu_flags <= cpu_flags)
