"""The device that `radixgate plan` is asked about: a GPU of the table or of flags, or this machine,
which is measured."""

import argparse
import os
import subprocess
import sys

import msgspec

from gateway.plan_model import FoundModel
from planning.accelerators import Accelerator, known_accelerator
from planning.errors import PlanError
from planning.machine import Assumptions, CpuRates, Machine, machine_of, machine_of_cpu
from planning.model_facts import ModelFacts
from runtime.calibration_messages import Calibration, CalibrationShape
from runtime.worker_process import environment

_CALIBRATION_TIMEOUT_S = 300
_TENSOR_PARALLEL = (1, 2, 4, 8)


def machines_of(
    options: argparse.Namespace, facts: ModelFacts, bits: float, assumed: Assumptions
) -> tuple[Machine, ...]:
    """The sizes of a replica to choose from, the smallest first. Raises: PlanError."""
    gpu = accelerator_of(options)
    compute_bits = options.compute_bits or (8 if bits == 8 and gpu.flops_8 else 16)
    sizes = [options.tensor_parallel] if options.tensor_parallel else list(_TENSOR_PARALLEL)
    fitting = [size for size in sizes if facts.num_heads % size == 0]
    if not fitting:
        raise PlanError(f"{facts.num_heads} heads cannot be split over {sizes[0]} GPUs")
    if options.gpus is not None:
        fitting = [size for size in fitting if size <= options.gpus] or fitting[:1]
    return tuple(
        machine_of(gpu, num_devices=size, compute_bits=compute_bits, assumed=assumed)
        for size in fitting
    )


def accelerator_of(options: argparse.Namespace) -> Accelerator:
    """Raises: PlanError for a name that is not in the table."""
    if options.gpu is not None:
        return known_accelerator(options.gpu)
    return Accelerator(
        name="GPU",
        memory_bytes=options.memory_gb * 1e9,
        bandwidth=options.bandwidth_gbs * 1e9,
        flops_16=options.tflops * 1e12,
        flops_8=options.tflops_8bit * 1e12 if options.tflops_8bit else None,
        link=(options.link_gbs or 32) * 1e9,
        source="flags",
    )


def calibrate(found: FoundModel) -> Calibration:
    """Measures this machine with layers of the model's shape. Raises: PlanError."""
    facts = found.facts
    shape = CalibrationShape(
        hidden_size=facts.hidden_size,
        num_heads=facts.num_heads,
        num_kv_heads=facts.num_kv_heads,
        head_dim=facts.head_dim,
        ffn_size=facts.ffn_size,
        weight_bits=found.packed.bits if found.packed is not None else 8,
    )
    return measure_cpu(shape)


def measure_cpu(shape: CalibrationShape) -> Calibration:
    """In a process of its own, which loads torch. Raises: PlanError."""
    given = msgspec.json.encode(shape).decode()
    try:
        done = subprocess.run(
            (sys.executable, "-P", "-m", "runtime.calibration", given),
            capture_output=True,
            text=True,
            timeout=_CALIBRATION_TIMEOUT_S,
            check=False,
            env=environment(),
        )
    except subprocess.TimeoutExpired:
        raise PlanError(f"measuring took more than {_CALIBRATION_TIMEOUT_S} s") from None
    except OSError as error:
        reason = error.strerror or error
        raise PlanError(f"this machine could not be measured: {reason}") from None
    try:
        return msgspec.json.decode(done.stdout, type=Calibration)
    except msgspec.MsgspecError:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise PlanError(f"this machine could not be measured: {lines[-1][:200]}") from None


def cpu_machine(calibration: Calibration, assumed: Assumptions) -> Machine:
    """With the rates that were measured."""
    rates = CpuRates(
        name=f"this CPU ({calibration.num_threads} threads, {calibration.kernel})",
        memory_bytes=float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        weight_bytes_s=calibration.weight_bytes_s,
        kv_bytes_s=calibration.kv_bytes_s,
        decode_flops=calibration.decode_flops,
        prefill_flops=calibration.prefill_flops,
        attention_flops=calibration.attention_flops,
    )
    return machine_of_cpu(rates, assumed=assumed)
