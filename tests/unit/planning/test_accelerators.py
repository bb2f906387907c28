"""The table of GPUs."""

import pytest

from planning.accelerators import ACCELERATORS, known_accelerator
from planning.errors import PlanError
from planning.machine import Assumptions, machine_of


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("h100", "H100-SXM"),
        ("H100-sxm", "H100-SXM"),
        ("rtx 4090", "RTX-4090"),
        ("A100", "A100-80GB"),
    ],
)
def test_a_gpu_is_found_by_what_people_type(typed: str, name: str) -> None:
    assert known_accelerator(typed).name == name


def test_an_unknown_gpu_is_refused_with_the_known_ones() -> None:
    with pytest.raises(PlanError, match="'H900' is no known GPU; known: H100-SXM"):
        known_accelerator("H900")


@pytest.mark.parametrize("name", sorted(ACCELERATORS))
def test_figures_are_dense_and_have_a_source(name: str) -> None:
    gpu = ACCELERATORS[name]
    assert gpu.source
    assert 10e9 < gpu.memory_bytes < 300e9
    # Of data sheets that print figures with sparsity, 16 bits would exceed this.
    assert 70 < gpu.flops_16 / gpu.bandwidth < 450
    assert gpu.flops_8 is None or 1.5 < gpu.flops_8 / gpu.flops_16 <= 4


def test_a_replica_has_the_rates_of_its_gpus_less_what_is_lost() -> None:
    machine = machine_of(
        known_accelerator("H100"), num_devices=2, compute_bits=8, assumed=Assumptions()
    )
    assert machine.usable_bytes == pytest.approx(2 * 80e9 * 0.9)
    assert machine.bandwidth == pytest.approx(2 * 3350e9 * 0.8)
    assert machine.prefill_flops == pytest.approx(2 * 1979e12 * 0.5)
    assert machine.attention_flops == pytest.approx(2 * 989.5e12 * 0.5)


def test_a_share_above_one_is_refused() -> None:
    with pytest.raises(PlanError, match="the bandwidth share must be above 0 and at most 1"):
        Assumptions(bandwidth=1.1).check()
