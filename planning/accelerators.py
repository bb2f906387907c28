"""GPUs that `radixgate plan` knows by name, with the figures of their makers.

FLOP/s are dense (data sheets often print twice that, "with sparsity"); bytes are decimal. A link's
rate is of one direction between neighbours.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from planning.errors import PlanError


@dataclass(frozen=True, slots=True)
class Accelerator:
    """`memory_bytes`, `bandwidth` (bytes/s), `flops_16` and `flops_8` (FLOP/s of matrices of 16
    and 8 bits; None where it has no faster 8 bits), `link` (bytes/s to the others, one way)."""

    name: str
    memory_bytes: float
    bandwidth: float
    flops_16: float
    flops_8: float | None
    link: float
    source: str


_NVIDIA = "https://www.nvidia.com/en-us/data-center"
_H100 = f"{_NVIDIA}/h100/ (data sheet, halved: it is with sparsity)"
_A100 = f"{_NVIDIA}/a100/ (data sheet)"
_ADA = "NVIDIA Ada GPU architecture, V2.01, appendix A"
_AMPERE = "NVIDIA Ampere GA102 GPU architecture, V2.1, appendix A"
_AMD = "https://www.amd.com/en/products/accelerators/instinct/mi300"
_GB, _TB, _T = 1e9, 1e12, 1e12
_PCIE3, _PCIE4, _PCIE5 = 16e9, 32e9, 64e9  # 16 lanes, one way


def _gpu(
    name: str,
    memory_gb: float,
    bandwidth_gbs: float,
    tflops: tuple[float, float | None],
    link: float,
    source: str,
) -> Accelerator:
    flops_16, flops_8 = tflops
    return Accelerator(
        name=name,
        memory_bytes=memory_gb * _GB,
        bandwidth=bandwidth_gbs * _GB,
        flops_16=flops_16 * _T,
        flops_8=None if flops_8 is None else flops_8 * _T,
        link=link,
        source=source,
    )


_ALL = (
    _gpu("H100-SXM", 80, 3350, (989.5, 1979), 450e9, _H100),
    _gpu("H100-NVL", 94, 3900, (835.5, 1671), 300e9, _H100),
    _gpu("H100-PCIe", 80, 2000, (756.5, 1513), _PCIE5, f"{_NVIDIA}/h100/ (product brief, halved)"),
    _gpu("H200", 141, 4800, (989.5, 1979), 450e9, f"{_NVIDIA}/h200/ (data sheet, halved)"),
    _gpu("B200", 180, 8000, (2250, 4500), 900e9, f"{_NVIDIA}/dgx-b200/ (an eighth, dense)"),
    _gpu("A100-40GB", 40, 1555, (312, 624), 300e9, _A100),
    _gpu("A100-80GB", 80, 2039, (312, 624), 300e9, _A100),
    _gpu("A100-80GB-PCIe", 80, 1935, (312, 624), _PCIE4, _A100),
    _gpu("L4", 24, 300, (121, 242), _PCIE4, f"{_NVIDIA}/l4/ (data sheet, halved)"),
    _gpu("L40S", 48, 864, (362, 733), _PCIE4, f"{_NVIDIA}/l40s/ (data sheet)"),
    _gpu("A10G", 24, 600, (70, 140), _PCIE4, "NVIDIA A10G for AWS, data sheet"),
    _gpu("T4", 16, 320, (65, 130), _PCIE3, f"{_NVIDIA}/tesla-t4/ (data sheet)"),
    _gpu("RTX-4090", 24, 1008, (165.2, 330.3), _PCIE4, _ADA),
    _gpu("RTX-3090", 24, 936, (71, 284), _PCIE4, _AMPERE),
    _gpu("MI300X", 192, 5300, (1307.4, 2614.9), 64e9, f"{_AMD}/mi300x.html"),
)
ACCELERATORS: Mapping[str, Accelerator] = {gpu.name: gpu for gpu in _ALL}
# What people type.
_ALIASES = {
    "h100": "H100-SXM",
    "h100-80gb": "H100-SXM",
    "a100": "A100-80GB",
    "a100-40": "A100-40GB",
    "a100-80": "A100-80GB",
    "4090": "RTX-4090",
    "rtx4090": "RTX-4090",
    "3090": "RTX-3090",
    "rtx3090": "RTX-3090",
}


def known_accelerator(name: str) -> Accelerator:
    """By its name or a usual short form, in any case. Raises: PlanError."""
    wanted = name.lower().replace(" ", "-").replace("_", "-")
    wanted = _ALIASES.get(wanted, wanted)
    for gpu in ACCELERATORS.values():
        if gpu.name.lower() == wanted.lower():
            return gpu
    raise PlanError(f"{name!r} is no known GPU; known: {', '.join(ACCELERATORS)}")
