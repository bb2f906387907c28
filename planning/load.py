"""What a replica does under a load: how many rows it decodes at once, TTFT, TPOT, throughput.

Continuous batching on one device: steps carry all decode rows, and chunks of one prompt after the
other. With b rows in decode on average, a step of them takes t; a prompt adds S seconds of work;
an answer has D decode steps. f is the part of the load that is others': (U - 1) / U for U users
in a closed loop (what an arriving one finds: Schweitzer's approximation of mean value analysis,
1979), 1 for random arrivals. Little's law and the sums of work then give

    requests a second  X = b / (D t + b S f)
    TPOT               t + b S f / D        a row waits while others' prompts are computed
    TTFT               request + W + prefill + what the decode rows add to its steps
    W                  rho s / (2 (1 - rho)), rho = X f s    M/D/1 (Pollaczek and Khinchine)

with s the time for which a prompt occupies the prefill. A request sees itself and the rows of
others: t is of 1 + b f rows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from planning.errors import PlanError
from planning.step_time import ServedModel, StepTime
from planning.workload import Workload

_MAX_ROWS = 1 << 20
_NUM_HALVINGS = 80  # also of a millionth of a row nine digits are known then


@dataclass(frozen=True, slots=True)
class LoadState:
    """One replica in steady state. `rows`: in decode on average; `step_rows`: of the steps that a
    request sees, itself included; `users`: requests in the server; `sequences`: of them those with
    KV, on average; `rate`: requests a second; `busy`: of the time, the part in which a prompt is
    in the prefill."""

    rows: float
    step_rows: float
    users: float
    sequences: float
    rate: float
    ttft_s: float
    tpot_s: float
    queue_s: float
    busy: float
    step: StepTime


@dataclass(frozen=True)
class ReplicaLoad:
    """A served model with requests of one kind. Without slots, as it keeps what it computed."""

    served: ServedModel
    workload: Workload

    @cached_property
    def prefill(self) -> StepTime:
        """Of one prompt that is alone."""
        work = self.workload
        cached = work.prompt - work.new
        return self.served.prefill(new=work.new, cached=cached, chunk=work.chunk)

    @cached_property
    def prompt_work_s(self) -> float:
        """What a prompt adds to the steps of others, whose weights are read anyway."""
        prefill = self.prefill
        attention_s = max(prefill.kv_s, prefill.attention_s)
        return prefill.matmul_s + attention_s + prefill.communication_s

    def decode_step(self, rows: float) -> StepTime:
        return self.served.decode_step(rows=rows, context=self.workload.mean_context)

    @cached_property
    def _empty_step_s(self) -> float:
        """What a step takes before it has a decode row."""
        return self.decode_step(0).total_s

    def ttft_alone_s(self) -> float:
        """Without any other request."""
        return self.served.machine.request_s + self.prefill.total_s

    def tpot_alone_s(self) -> float:
        """Without any other request."""
        return self.decode_step(1).total_s

    def with_rows(self, rows: float, *, users: float | None) -> LoadState:
        """With so many rows in decode on average; `users` None: requests arrive at random."""
        work, steps = self.workload, self.workload.num_decode_steps
        others = 1.0 if users is None else max(0.0, 1.0 - 1.0 / users)
        step = self.decode_step(1 + rows * others)
        added_s = self.prompt_work_s
        rate = rows / (steps * step.total_s + rows * added_s * others)
        beside_s = self.decode_step(rows * others).total_s
        chunks = work.new / work.chunk
        occupied_s = added_s + chunks * beside_s
        queue_s = _mean_wait(rate * others, occupied_s)
        slowed_s = max(1.0, chunks) * (beside_s - self._empty_step_s)
        ttft_s = self.ttft_alone_s() + queue_s + slowed_s
        return LoadState(
            rows=rows,
            step_rows=1 + rows * others,
            users=rows + rate * ttft_s,
            # Whoever waits for the prefill has none yet; of users each may have some in the end.
            sequences=users if users is not None else rows + max(1.0, rate * occupied_s),
            rate=rate,
            ttft_s=ttft_s,
            tpot_s=step.total_s + rows * added_s * others / steps,
            queue_s=queue_s,
            busy=rate * occupied_s,
            step=step,
        )

    def with_users(self, users: float) -> LoadState:
        """`users` that each send a request, wait for the whole answer and send the next."""

        def is_below(rows: float) -> bool:
            return self.with_rows(rows, users=users).users < users

        return self.with_rows(_halve(is_below, users), users=users)

    def with_rate(self, rate: float) -> LoadState:
        """Random arrivals. Raises: PlanError where so many cannot be served."""

        def is_below(rows: float) -> bool:
            return self.with_rows(rows, users=None).rate < rate

        if is_below(_MAX_ROWS):
            raise PlanError(
                f"{rate:g} requests a second exceed what the GPU can compute, whatever its memory"
            )
        return self.with_rows(_halve(is_below, _MAX_ROWS), users=None)


def _mean_wait(rate: float, service_s: float) -> float:
    """M/D/1: the mean wait for a server that takes `service_s`; infinite where it cannot cope."""
    busy = rate * service_s
    return busy * service_s / (2 * (1 - busy)) if busy < 1 else math.inf


def _halve(is_below: Callable[[float], bool], highest: float) -> float:
    """The place in (0, highest] where `is_below` ends to hold."""
    low, high = 0.0, float(highest)
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return high
