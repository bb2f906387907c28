"""Runs the workloads on servers, one server at a time, and gives a row a load.

Every server gets the same bodies and the same warm-up. Seeds differ from round to round and from
one number of clients to the next, so that no prompt is in a cache unless its own load put it there.
"""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

import jsonschema

from telemetry.answer_stream import Answer, StreamError, read_answer
from tests.bench.client import RecordedLoad, run_load
from tests.bench.load_summary import summarize
from tests.bench.memory import watch_memory
from tests.bench.processor import ProcessorTimes
from tests.bench.results import ColdAndWarm, LoadRow, Results, Start
from tests.bench.servers import Contender, Endpoint, running
from tests.bench.workloads import ANSWER_SCHEMA, Body, Workload, make_bodies, make_pairs

_WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured. `requests_each` is the number of requests of each client."""

    workloads: tuple[Workload, ...]
    clients: tuple[int, ...]
    min_requests: int
    requests_each: int
    num_pairs: int
    rounds: int
    seed: int

    def num_requests(self, num_clients: int) -> int:
        return max(self.min_requests, num_clients * self.requests_each)


async def measure_all(contenders: Sequence[Contender], plan: Plan, results: Results) -> None:
    """Adds to `results`; the contenders take turns, in their order, `plan.rounds` times.

    Raises: ServerError.
    """
    for number in range(plan.rounds):
        for contender in contenders:
            parts = [(count,) for count in plan.clients] if contender.restarts else [plan.clients]
            for counts in parts:
                await _measure_started(contender, plan, counts, number=number, results=results)


async def _measure_started(
    contender: Contender, plan: Plan, counts: tuple[int, ...], *, number: int, results: Results
) -> None:
    async with running(contender) as endpoint:
        results.versions[contender.name] = endpoint.version or "unknown"
        for num_clients in counts:
            seed = f"{plan.seed}/{number}/{num_clients}"
            await warm_up(endpoint, num_clients=num_clients, seed=seed)
            async with watch_memory(endpoint.pid) as peak:
                async for row in _loads(contender.name, endpoint, plan, num_clients, seed):
                    results.add_row(number, row)
            if num_clients == 1 and plan.num_pairs:
                pairs = await measure_pairs(endpoint, num_pairs=plan.num_pairs, seed=seed)
                results.pairs.append((contender.name, pairs))
            if endpoint.start_s is not None:
                results.starts.append(
                    Start(contender.name, num_clients, endpoint.start_s, peak.pss_bytes)
                )


async def _loads(
    server: str, endpoint: Endpoint, plan: Plan, num_clients: int, seed: str
) -> AsyncIterator[LoadRow]:
    for workload in plan.workloads:
        bodies = make_bodies(
            workload, endpoint.model, num_requests=plan.num_requests(num_clients), seed=seed
        )
        start = ProcessorTimes.now(endpoint.pid)
        load = await run_load(endpoint.base_url, bodies, num_clients=num_clients)
        other_cores = ProcessorTimes.now(endpoint.pid).other_cores_since(start)
        yield replace(make_row(server, workload, num_clients, load), other_cores=other_cores)


async def warm_up(endpoint: Endpoint, *, num_clients: int, seed: str) -> None:
    """A few tokens for each client, then one request of every workload; seeds of its own."""
    seed = f"warm-up/{seed}"
    short = make_bodies("short", endpoint.model, num_requests=num_clients, seed=seed)
    others: list[Body] = []
    for workload in ("unique", "shared", "json"):
        others += make_bodies(workload, endpoint.model, num_requests=1, seed=seed)
    for bodies in (short, others):
        few = [body | {"max_tokens": _WARM_UP_TOKENS} for body in bodies]
        await run_load(endpoint.base_url, few, num_clients=num_clients)


async def measure_pairs(endpoint: Endpoint, *, num_pairs: int, seed: str) -> ColdAndWarm:
    """Time to first token of a long prompt, cold and then with its prefix cached.

    Raises: StreamError.
    """
    bodies = make_pairs(endpoint.model, num_pairs=num_pairs, seed=seed)
    load = await run_load(endpoint.base_url, bodies, num_clients=1)
    answers = [read_answer(stream) for stream in load.streams]
    ttft_ms = [answer.timing.ttft_s * 1e3 for answer in answers if answer.timing]
    return ColdAndWarm(
        prompt_tokens=answers[0].prompt_tokens,
        cold_ms=tuple(ttft_ms[::2]),
        warm_ms=tuple(ttft_ms[1::2]),
    )


def make_row(server: str, workload: Workload, num_clients: int, load: RecordedLoad) -> LoadRow:
    """The figures of one load; a stream that is no whole answer is a failure."""
    answers: list[Answer] = []
    failures: list[str] = []
    for stream in load.streams:
        try:
            answers.append(read_answer(stream))
        except StreamError as error:
            failures.append(str(error))
    timings = [answer.timing for answer in answers if answer.timing is not None]
    num_valid = sum(_is_valid(answer.text) for answer in answers)
    return LoadRow(
        server=server,
        workload=workload,
        num_clients=num_clients,
        num_requests=len(load.streams),
        num_failed=len(failures),
        first_failure=failures[0] if failures else None,
        wall_s=load.wall_s,
        summary=summarize(timings, wall_s=load.wall_s),
        valid_s=num_valid / load.wall_s if workload == "json" else None,
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
        output_tokens=sum(answer.output_tokens for answer in answers),
        cached_tokens=sum(answer.cached_tokens or 0 for answer in answers),
        client_cpu=load.client_cpu,
    )


def _is_valid(text: str) -> bool:
    try:
        jsonschema.validate(json.loads(text), ANSWER_SCHEMA)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True
