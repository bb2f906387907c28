"""Which build a CPU gets, by the flags that its kernel lists."""

import pytest

from runtime.native.instruction_sets import INSTRUCTION_SETS, choose_instruction_set

HASWELL = frozenset({"sse4_2", "avx", "avx2", "fma", "f16c", "bmi1", "bmi2"})
ALDER_LAKE = HASWELL | {"avx_vnni", "vaes", "gfni"}
SKYLAKE_X = HASWELL | {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd"}
ICE_LAKE = SKYLAKE_X | {"avx512_vnni", "avx512_vbmi", "avx512ifma"}
SAPPHIRE_RAPIDS = ICE_LAKE | {"avx512_bf16", "avx_vnni", "amx_bf16", "amx_int8"}
ZEN_5 = ICE_LAKE | {"avx512_bf16", "avx_vnni", "avx512_vp2intersect"}
SANDY_BRIDGE = frozenset({"sse4_2", "avx"})


@pytest.mark.parametrize(
    ("cpu_flags", "name"),
    [
        (ZEN_5, "avx512_bf16"),
        (SAPPHIRE_RAPIDS, "avx512_bf16"),
        (ICE_LAKE, "avx512_vnni"),
        (ALDER_LAKE, "avx_vnni"),
        (SKYLAKE_X, "avx2"),
        (HASWELL, "avx2"),
        (SANDY_BRIDGE, "plain"),
        (frozenset(), "plain"),
    ],
)
def test_a_cpu_gets_the_best_that_it_can_run(cpu_flags: frozenset[str], name: str) -> None:
    assert choose_instruction_set(cpu_flags).name == name


def test_a_flag_short_of_a_set_is_not_that_set() -> None:
    for one in INSTRUCTION_SETS:
        for flag in one.cpu_flags:
            assert choose_instruction_set(one.cpu_flags - {flag}) != one


def test_each_set_has_a_name_and_compiler_flags_of_its_own() -> None:
    assert len({one.name for one in INSTRUCTION_SETS}) == len(INSTRUCTION_SETS)
    assert len({one.compiler_flags for one in INSTRUCTION_SETS}) == len(INSTRUCTION_SETS)
    assert INSTRUCTION_SETS[-1].cpu_flags == frozenset()
