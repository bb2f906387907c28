"""A plan for programs: bytes, seconds, tokens, requests a second."""

import math
from typing import Any

from planning.kv_cache import bytes_per_token, load_bytes
from planning.plan import Layout, Plan
from planning.step_time import StepTime


def plan_json(plan: Plan) -> dict[str, Any]:
    """Numbers that would be infinite are null."""
    question, layout, facts = plan.question, plan.layout, plan.question.facts
    shared, apart = kv_of_load(plan)
    return {
        "model": {
            "name": facts.name,
            "source": facts.source,
            "parameters": facts.total_params,
            "active_parameters": facts.active_params,
            "weights_bytes": layout.room.weights,
            "kv_bytes_per_token": bytes_per_token(facts, question.kv),
        },
        "kv_of_load": {"bytes": shared, "bytes_without_sharing": apart},
        "replica": _replica_json(layout),
        "alone": {
            "ttft_s": layout.load.ttft_alone_s(),
            "tpot_s": layout.load.tpot_alone_s(),
            "prefill": _parts(layout.load.prefill),
        },
        "loaded": _loaded_json(layout),
        "gpus": layout.num_gpus,
        "replicas": layout.num_replicas,
        "limit": layout.limit,
        "unmet": layout.unmet,
        "per_gpu": layout.per_gpu,
        "best_change": _change_json(plan),
        "cost": _cost_json(plan),
    }


def kv_of_load(plan: Plan) -> tuple[float, float]:
    """Bytes of KV on all replicas, with the shared prefix once on each and without sharing."""
    question, layout = plan.question, plan.layout
    work, users = question.workload, layout.state.sequences

    def on_each(shared: int) -> float:
        longest = work.longest
        return load_bytes(
            question.facts, question.kv, users=users, tokens_each=longest, shared=shared
        )

    return on_each(work.shared) * layout.num_replicas, on_each(0) * layout.num_replicas


def output_tokens_s(layout: Layout) -> float:
    """Of all replicas."""
    return layout.state.rate * layout.num_replicas * layout.load.workload.output


def _replica_json(layout: Layout) -> dict[str, Any]:
    machine, room = layout.load.served.machine, layout.room
    return {
        "device": machine.name,
        "tensor_parallel": machine.num_devices,
        "usable_bytes": room.usable,
        "kv_bytes": room.kv,
        "max_users": room.num_users,
        "max_users_without_sharing": room.num_users_apart,
        "max_context": room.max_context,
    }


def _loaded_json(layout: Layout) -> dict[str, Any]:
    state = layout.state
    return {
        "ttft_s": _finite(state.ttft_s),
        "tpot_s": state.tpot_s,
        "queue_s": _finite(state.queue_s),
        "rows": state.rows,
        "step_rows": state.step_rows,
        "users": _finite(state.users),
        "requests_s": state.rate * layout.num_replicas,
        "output_tokens_s": output_tokens_s(layout),
        "sequences": state.sequences,
        "prefill_busy": state.busy,
        "decode_step": _parts(state.step),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _parts(step: StepTime) -> dict[str, float | str]:
    return {
        "total_s": step.total_s,
        "weights_s": step.weights_s,
        "matmul_s": step.matmul_s,
        "kv_s": step.kv_s,
        "attention_s": step.attention_s,
        "communication_s": step.communication_s,
        "overhead_s": step.overhead_s,
        "limit": step.limit,
    }


def _change_json(plan: Plan) -> dict[str, Any] | None:
    change = plan.best_change
    if change is None:
        return None
    return {"what": change.what, "gpus": change.num_gpus, "per_gpu": change.per_gpu}


def _cost_json(plan: Plan) -> dict[str, float | None] | None:
    cost = plan.cost
    if cost is None:
        return None
    return {
        "per_hour": cost.per_hour,
        "per_request": cost.per_request,
        "per_million_tokens": cost.blended,
        "per_million_output_tokens_all_in": cost.per_million_output,
        "input_per_million": cost.input,
        "cached_input_per_million": cost.cached_input,
        "output_per_million": cost.output,
    }
