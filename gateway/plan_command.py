"""The command `radixgate plan`: what a model and a load need, from sizes and data sheets."""

import argparse
import dataclasses
import json
import sys

import msgspec

from gateway.plan_device import accelerator_of, calibrate, cpu_machine, machines_of
from gateway.plan_flags import KV_BITS
from gateway.plan_model import FoundModel, find_model
from gateway.terminal_text import harmless
from planning.accelerators import ACCELERATORS
from planning.errors import PlanError
from planning.known_models import KNOWN_MODELS, known_model
from planning.kv_cache import KvFormat
from planning.machine import CPU_REQUEST_S, CPU_STEP_S, Assumptions, Machine
from planning.plan import Plan, Question, make_plan
from planning.plan_json import plan_json
from planning.report import aligned, plan_lines
from planning.weights import PACKED_BITS, WeightBytes, stored_weight_bytes, weight_bytes
from planning.workload import Demand, Workload
from runtime.calibration_messages import Calibration
from runtime.errors import ModelError

EXIT_IMPOSSIBLE, EXIT_UNUSABLE = 1, 2
_GPU_CHUNK, _CPU_CHUNK = 2048, 512  # vLLM's token budget of a step, and ours


class UnusableFlags(Exception):
    """Flags that contradict each other; one line."""


def run_plan_command(options: argparse.Namespace) -> int:
    """Returns the exit code: 0, 1 where the load cannot be served or the model cannot be read, 2
    for flags that contradict each other."""
    try:
        if options.list:
            _print(_known_lines())
        else:
            _plan(options)
    except UnusableFlags as error:
        return _complain(error, EXIT_UNUSABLE)
    except (PlanError, ModelError) as error:
        return _complain(error, EXIT_IMPOSSIBLE)
    return 0


def _plan(options: argparse.Namespace) -> None:
    _check_flags(options)
    found = find_model(options)
    assumed = _assumptions(options)
    calibration = calibrate(found) if options.cpu else None
    question = _question(options, found, assumed, calibration)
    plan = make_plan(question)
    if options.json:
        assumptions = dataclasses.asdict(assumed)
        measured = None if calibration is None else msgspec.to_builtins(calibration)
        said = {**plan_json(plan), "assumptions": assumptions, "calibration": measured}
        _print([json.dumps(said, indent=1, allow_nan=False)])
        return
    _print([*plan_lines(plan), "", *_assumption_lines(options, plan, assumed, calibration)])


_SIZES = (
    "params", "layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "tied", "window",
    "context", "experts", "experts_used", "expert_ffn",
)  # fmt: skip
_FIGURES = ("memory_gb", "bandwidth_gbs", "tflops")
_OTHER_FIGURES = ("tflops_8bit", "link_gbs")
_GPU_ONLY = (
    "gpus", "tensor_parallel", "compute_bits", "weight_bits", "drop_windows",
    "bandwidth_efficiency", "flop_efficiency",
)  # fmt: skip


def _check_flags(options: argparse.Namespace) -> None:
    """Every flag counts or is refused. Raises: UnusableFlags."""

    def given(names: tuple[str, ...]) -> list[str]:
        return [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]

    ways = [options.gpu is not None, bool(given(_FIGURES)), options.cpu]
    if sum(ways) != 1:
        raise UnusableFlags(
            "name one device: --gpu NAME, --memory-gb with --bandwidth-gbs and --tflops, or --cpu"
        )
    if given(_FIGURES) and len(given(_FIGURES)) < len(_FIGURES):
        raise UnusableFlags("--memory-gb, --bandwidth-gbs and --tflops belong together")
    refused = [] if given(_FIGURES) else given(_OTHER_FIGURES)
    refused += given(_SIZES) if options.model is not None else []
    refused += given(_GPU_ONLY) if options.cpu else []
    if options.cpu and options.kv_dtype != "bfloat16":
        refused.append("--kv-dtype")
    if refused:
        what = "--cpu" if options.cpu else "--model" if options.model else "--gpu"
        raise UnusableFlags(f"{', '.join(refused)} cannot be given with {what}")
    if options.users is not None and options.rate is not None:
        raise UnusableFlags("--users and --rate exclude each other")
    shares = (options.memory_share, options.bandwidth_efficiency, options.flop_efficiency)
    if any(share is not None and share > 1 for share in shares):
        raise UnusableFlags("shares and efficiencies are at most 1")


def _assumptions(options: argparse.Namespace) -> Assumptions:
    usual = Assumptions()
    if options.cpu:
        usual = dataclasses.replace(usual, step_s=CPU_STEP_S, request_s=CPU_REQUEST_S)
    given = {
        "memory": options.memory_share,
        "bandwidth": options.bandwidth_efficiency,
        "compute": options.flop_efficiency,
        "step_s": options.step_overhead,
        "request_s": options.request_overhead,
    }
    wanted = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(usual, **wanted).check()


def _question(
    options: argparse.Namespace,
    found: FoundModel,
    assumed: Assumptions,
    calibration: Calibration | None,
) -> Question:
    weights, bits = _weights(options, found)
    if calibration is not None:
        machines: tuple[Machine, ...] = (cpu_machine(calibration, assumed),)
    else:
        machines = machines_of(options, found.facts, bits, assumed)
    users = options.users if options.users or options.rate else 1
    return Question(
        facts=found.facts,
        weights=weights,
        weight_bits=bits if found.facts.stored is None else None,
        kv=KvFormat(KV_BITS[options.kv_dtype], drops_windows=options.drop_windows),
        machines=machines,
        workload=Workload(
            prompt=options.prompt,
            output=options.output,
            shared=options.shared_prefix,
            chunk=options.chunk or (_CPU_CHUNK if options.cpu else _GPU_CHUNK),
        ),
        demand=Demand(users, options.rate, options.ttft, options.tpot),
        num_gpus=options.gpus,
        price_per_hour=options.price_per_hour,
        may_change_formats=not options.cpu,
    )


def _weights(options: argparse.Namespace, found: FoundModel) -> tuple[WeightBytes, float]:
    """What the weights take, and in how many bits most of them are."""
    facts = found.facts
    if options.weight_bits is not None:
        return weight_bytes(facts, options.weight_bits), options.weight_bits
    if options.cpu and found.packed is not None:
        return stored_weight_bytes(facts, found.packed), float(found.packed.bits)
    if options.cpu:  # all but GGUF's formats is quantized to 8 bits when it is loaded
        packed = PACKED_BITS[8]
        return weight_bytes(facts, packed, table_bits=packed), 8.0
    if facts.stored is not None:
        return stored_weight_bytes(facts, facts.stored), found.weight_bits
    return weight_bytes(facts, found.weight_bits), found.weight_bits


def _assumption_lines(
    options: argparse.Namespace, plan: Plan, assumed: Assumptions, calibration: Calibration | None
) -> list[str]:
    memory = f"{assumed.memory:g} of the memory"
    overhead = f"{assumed.step_s * 1e3:g} ms a step, {assumed.request_s * 1e3:g} ms a request"
    if calibration is not None:
        measured = f"weights {calibration.weight_bytes_s / 1e9:.1f} GB/s (memory read in order"
        measured += f" {calibration.read_bytes_s / 1e9:.1f}), KV {calibration.kv_bytes_s / 1e9:.1f}"
        measured += f" GB/s; matrices {calibration.decode_flops / 1e9:,.0f} Gop/s in steps of 16"
        measured += f" rows, {calibration.prefill_flops / 1e9:,.0f} in prefill; attention"
        measured += f" {calibration.attention_flops / 1e9:,.0f}"
        return aligned([("measured", measured), ("assumed", f"{memory}, {overhead}")])
    gpu = accelerator_of(options)
    figures = f"{gpu.name}: {gpu.memory_bytes / 1e9:g} GB, {gpu.bandwidth / 1e9:,.0f} GB/s,"
    figures += f" {gpu.flops_16 / 1e12:g} TFLOP/s in 16 bits"
    if gpu.flops_8:
        figures += f", {gpu.flops_8 / 1e12:g} in 8"
    shares = f"{memory}, {assumed.bandwidth:g} of the bandwidth, {assumed.compute:g} of the FLOP/s;"
    shares += f" {overhead}"
    if plan.layout.load.served.machine.num_devices > 1:
        shares += f", {assumed.all_reduce_s * 1e6:g} us an all-reduce"
    return aligned([("GPU", f"{figures} ({gpu.source})"), ("assumed", shares)])


def _known_lines() -> list[str]:
    lines = []
    for name in KNOWN_MODELS:
        facts = known_model(name)
        lines.append((name, f"{facts.total_params / 1e9:,.2f} G parameters: {facts.source}"))
    for gpu in ACCELERATORS.values():
        text = f"{gpu.memory_bytes / 1e9:g} GB, {gpu.bandwidth / 1e9:,.0f} GB/s,"
        lines.append((gpu.name, f"{text} {gpu.flops_16 / 1e12:g} TFLOP/s: {gpu.source}"))
    return aligned(lines)


def _print(lines: list[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _complain(error: Exception, code: int) -> int:
    sys.stderr.write(f"radixgate: {harmless(str(error), is_plain=False)}\n")
    return code
