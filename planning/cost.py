"""What tokens cost: the price of the hour over what is served in it, split by who causes what."""

from dataclasses import dataclass

from planning.kv_cache import attention_pairs, read_bytes
from planning.load import LoadState, ReplicaLoad

_HOUR_S = 3600.0
_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class TokenCost:
    """In the currency of the price. `blended`: all of it over all tokens, cached ones too;
    `per_million_output`: all of it over the output tokens; the others a part each, so that input,
    cached input and output add up to the hour. `cached_input` is None where nothing is shared."""

    per_hour: float
    per_request: float
    blended: float
    per_million_output: float
    input: float
    cached_input: float | None
    output: float


def token_cost(
    load: ReplicaLoad, state: LoadState, *, num_replicas: int, price_per_hour: float
) -> TokenCost:
    """`price_per_hour` of one device.

    A request causes seconds of work: a computed input token its share of the prefill, a cached one
    the attention to it (in the prefill and in each decode step), an output token the rest of the
    decode steps. The hour is split in proportion to them; idle time is borne by all alike.
    """
    work = load.workload
    per_hour = price_per_hour * load.served.machine.num_devices * num_replicas
    per_request = per_hour / (state.rate * num_replicas * _HOUR_S)
    num_cached = work.prompt - work.new
    cached_s = _cached_seconds(load, num_cached) if num_cached else 0.0
    input_s = max(0.0, load.prompt_work_s - _cached_prefill_seconds(load, num_cached))
    decode_s = work.num_decode_steps * state.step.total_s / state.step_rows
    output_s = max(0.0, decode_s - (cached_s - _cached_prefill_seconds(load, num_cached)))
    total_s = input_s + cached_s + output_s

    def price(seconds: float, num_tokens: int) -> float:
        return per_request * seconds / total_s / num_tokens * _MILLION

    return TokenCost(
        per_hour=per_hour,
        per_request=per_request,
        blended=per_request / work.longest * _MILLION,
        per_million_output=per_request / work.output * _MILLION,
        input=price(input_s, work.new),
        cached_input=price(cached_s, num_cached) if num_cached else None,
        output=price(output_s, work.output),
    )


def _cached_prefill_seconds(load: ReplicaLoad, num_cached: int) -> float:
    """What attention to cached tokens takes in the prefill of a request."""
    served, new = load.served, load.workload.new
    facts = served.facts
    pairs = attention_pairs(facts, new=new, cached=num_cached)
    pairs -= attention_pairs(facts, new=new, cached=0)
    flops = 4 * facts.num_heads * facts.head_dim * max(0.0, pairs)
    return flops / served.machine.attention_flops


def _cached_seconds(load: ReplicaLoad, num_cached: int) -> float:
    """In prefill and in all decode steps of a request."""
    served, work = load.served, load.workload
    context = work.mean_context
    read = read_bytes(served.facts, served.kv, context)
    read -= read_bytes(served.facts, served.kv, context - num_cached)
    decode_s = work.num_decode_steps * read / served.machine.kv_bandwidth
    return _cached_prefill_seconds(load, num_cached) + decode_s
