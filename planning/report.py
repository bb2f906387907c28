"""A plan for people: lines of a name and what is said of it."""

import math
from collections.abc import Iterator

from planning.kv_cache import bytes_per_token
from planning.plan import Plan
from planning.plan_json import kv_of_load, output_tokens_s
from planning.step_time import StepTime

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_Line = tuple[str, str]


def plan_lines(plan: Plan) -> list[str]:
    """The whole plan."""
    parts = (_model_lines, _memory_lines, _speed_lines, _layout_lines, _cost_lines)
    return aligned([line for part in parts for line in part(plan)])


def aligned(lines: list[_Line]) -> list[str]:
    """Names in one column, texts in the next."""
    width = max(len(name) for name, _ in lines) + 2
    return [f"{name:<{width}}{text}" for name, text in lines]


def size_text(num_bytes: float) -> str:
    """In the unit that fits, of 1,024 bytes each."""
    unit = 0
    while num_bytes >= 1024 and unit < len(_UNITS) - 1:
        num_bytes, unit = num_bytes / 1024, unit + 1
    digits = 0 if unit == 0 or num_bytes == int(num_bytes) else 1
    return f"{num_bytes:,.{digits}f} {_UNITS[unit]}"


def ms_text(seconds: float) -> str:
    """In milliseconds, with three digits or so."""
    milliseconds = seconds * 1e3
    if not math.isfinite(milliseconds):
        return "for ever"
    digits = 2 if milliseconds < 10 else 1 if milliseconds < 100 else 0
    return f"{milliseconds:,.{digits}f} ms"


def _model_lines(plan: Plan) -> Iterator[_Line]:
    facts, kv = plan.question.facts, plan.question.kv
    yield "model", f"{facts.name} ({facts.source})"
    text = f"{facts.total_params / 1e9:,.2f} G parameters"
    if facts.expert:
        text += f", {facts.active_params / 1e9:,.2f} G for a token"
    yield "weights", f"{text}: {size_text(plan.layout.room.weights)}"
    per_token = bytes_per_token(facts, kv)
    text = f"{per_token:,.0f} bytes = {size_text(per_token)}: 2 x {facts.num_layers} layers"
    text += f" x {facts.num_kv_heads} KV heads x {facts.head_dim} x {kv.bits:g} bits"
    windowed = sum(window is not None for window in facts.windows)
    if windowed:
        kept = "keep" if kv.drops_windows else "read"
        text += f"; {windowed} of the layers {kept} a window only"
    yield "KV a token", text


def _memory_lines(plan: Plan) -> Iterator[_Line]:
    layout, work = plan.layout, plan.question.workload
    room, machine = layout.room, layout.load.served.machine
    shared, apart = kv_of_load(plan)
    users = layout.state.sequences * layout.num_replicas
    text = f"{size_text(shared)} for {users:,.1f} requests of {work.prompt} + {work.output} tokens"
    if work.shared:
        text += f"; {size_text(apart)} without sharing the first {work.shared}"
    yield "KV of the load", text
    text = f"{machine.num_devices} x {machine.name}: {size_text(room.usable)} usable,"
    yield "a replica", f"{text} {size_text(room.kv)} of it for KV"
    text = f"{room.num_users:,} such requests at once"
    if work.shared:
        text += f" ({room.num_users_apart:,} without sharing)"
    yield "fits in it", f"{text}, or one of {room.max_context:,} tokens"


def _speed_lines(plan: Plan) -> Iterator[_Line]:
    load, state = plan.layout.load, plan.layout.state
    prefill, step = load.prefill, state.step
    yield "prefill", f"{load.workload.new} tokens in {_parts(prefill)}"
    yield "decode step", f"{state.step_rows:,.1f} rows in {_parts(step)}"
    yield "alone", f"TTFT {ms_text(load.ttft_alone_s())}, TPOT {ms_text(load.tpot_alone_s())}"
    waiting = f"of it {ms_text(state.queue_s)} behind other prompts"
    text = f"TTFT {ms_text(state.ttft_s)} ({waiting}), TPOT {ms_text(state.tpot_s)}"
    yield "with the load", text


def _parts(step: StepTime) -> str:
    text = f"{ms_text(step.total_s)}: the longer of weights {ms_text(step.weights_s)} and"
    text += f" compute {ms_text(step.matmul_s)}, then of KV {ms_text(step.kv_s)} and attention"
    text += f" {ms_text(step.attention_s)}"
    if step.communication_s:
        text += f", communication {ms_text(step.communication_s)}"
    if step.overhead_s:
        text += f", overhead {ms_text(step.overhead_s)}"
    return f"{text}; limited by {step.limit}"


def _layout_lines(plan: Plan) -> Iterator[_Line]:
    layout = plan.layout
    rate = layout.state.rate * layout.num_replicas
    yield "throughput", f"{output_tokens_s(layout):,.0f} output tokens/s, {rate:,.2f} requests/s"
    size = layout.load.served.machine.num_devices
    text = f"{layout.num_replicas} x {size} (replicas x tensor parallel)"
    yield "GPUs", f"{layout.num_gpus} = {text}"
    yield "limited by", _limit(plan)
    change = plan.best_change
    text = "none of the formats tried here helps: shorter prompts or another GPU"
    if change is not None:
        text = f"{change.what}:"
        if change.num_gpus != layout.num_gpus:
            plural = "s" * (change.num_gpus != 1)
            text += f" {change.num_gpus} GPU{plural} in place of {layout.num_gpus},"
        text += (
            f" {change.per_gpu:,.1f} {_unit(plan)} on each GPU in place of {layout.per_gpu:,.1f}"
        )
    yield "next change", text


def _unit(plan: Plan) -> str:
    return "users" if plan.question.demand.users is not None else "requests/s"


def _limit(plan: Plan) -> str:
    layout = plan.layout
    step = layout.state.step
    if layout.unmet is not None:
        return f"{layout.unmet}: the GPUs that there are miss the target"
    texts = {
        "memory": "memory, where no further request fits",
        "TTFT": "TTFT, where first tokens come too late",
        "TPOT": f"TPOT, where tokens come too slowly (a step is limited by {step.limit})",
        "compute": "compute, where prompts come faster than they can be computed",
    }
    most = layout.per_gpu * layout.load.served.machine.num_devices
    return f"{texts[layout.limit]}: a replica takes up to {most:,.1f} {_unit(plan)}"


def _cost_lines(plan: Plan) -> Iterator[_Line]:
    cost = plan.cost
    if cost is None:
        return
    text = f"{cost.per_hour:,.2f} an hour, {cost.per_request:,.6f} a request,"
    yield "cost", f"{text} {cost.per_million_output:,.3f} a million output tokens with all input"
    text = f"input {cost.input:,.4f}"
    if cost.cached_input is not None:
        text += f", cached input {cost.cached_input:,.4f}"
    text += f", output {cost.output:,.4f}; of any kind {cost.blended:,.4f}"
    yield "a million tokens", text
