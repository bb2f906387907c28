"""The roofline of decode steps and of prefill: known answers."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planning.known_models import KNOWN_MODELS
from planning.machine import Assumptions
from tests.unit.planning.loads import gpus, served

IDEAL = Assumptions(bandwidth=1.0, compute=1.0, step_s=0.0, request_s=0.0, all_reduce_s=0.0)
READ = 2 * (8_030_261_248 - 128_256 * 4096)  # bytes of Llama 3.1 8B without the embedding


def test_one_row_takes_as_long_as_reading_the_weights() -> None:
    step = served(machine=gpus(assumed=IDEAL)).decode_step(rows=1, context=0)
    assert step.total_s == pytest.approx(READ / 3350e9)
    assert step.limit == "bandwidth"


def test_each_row_reads_its_own_kv() -> None:
    step = served(machine=gpus(assumed=IDEAL)).decode_step(rows=32, context=4000)
    assert step.kv_s == pytest.approx(32 * 4000 * 131_072 / 3350e9)
    assert step.total_s == pytest.approx(READ / 3350e9 + step.kv_s)


def test_many_rows_are_limited_by_compute() -> None:
    step = served(machine=gpus(assumed=IDEAL)).decode_step(rows=2000, context=0)
    assert step.matmul_s == pytest.approx(2 * 2000 * (READ / 2) / 989.5e12)
    assert step.limit == "compute"
    assert step.total_s == pytest.approx(step.matmul_s, rel=1e-3)


def test_prefill_is_two_flop_a_weight_and_token_with_logits_once() -> None:
    prefill = served(machine=gpus(assumed=IDEAL)).prefill(new=2000, cached=0, chunk=2048)
    head = 128_256 * 4096
    assert prefill.matmul_s == pytest.approx(2 * (2000 * (READ / 2 - head) + head) / 989.5e12)
    pairs = 32 * 2000 * 2001 / 2
    assert prefill.attention_s == pytest.approx(4 * 32 * 128 * pairs / 989.5e12)
    assert prefill.limit == "compute"


def test_cached_tokens_are_attended_to_and_not_computed() -> None:
    model = served(machine=gpus(assumed=IDEAL))
    cold, warm = (
        model.prefill(new=500, cached=0, chunk=512),
        model.prefill(new=500, cached=1500, chunk=512),
    )
    assert warm.matmul_s == cold.matmul_s
    added = 4 * 32 * 128 * 32 * 500 * 1500 / 989.5e12
    assert warm.attention_s - cold.attention_s == pytest.approx(added)


def test_weights_are_read_once_a_chunk() -> None:
    prefill = served(machine=gpus(assumed=IDEAL)).prefill(new=1000, cached=0, chunk=256)
    assert prefill.weights_s == pytest.approx(4 * READ / 3350e9)


def test_two_gpus_halve_reading_and_add_all_reduces() -> None:
    assumed = replace(IDEAL, all_reduce_s=10e-6)
    step = served(machine=gpus(2, assumed=assumed)).decode_step(rows=8, context=0)
    assert step.weights_s == pytest.approx(READ / 6700e9)
    sent = 8 * 4096 * 2 * 2 * (2 - 1) / 2
    assert step.communication_s == pytest.approx(2 * 32 * (sent / 450e9 + 10e-6))


def test_overhead_is_added_to_each_step() -> None:
    plain = served(machine=gpus(assumed=IDEAL)).decode_step(rows=4, context=10)
    machine = replace(gpus(assumed=IDEAL), step_s=0.002, row_s=0.0001)
    assert served(machine=machine).decode_step(rows=4, context=10).total_s == pytest.approx(
        plain.total_s + 0.0024
    )


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(KNOWN_MODELS)),
    rows=st.floats(1, 2000),
    context=st.floats(0, 8000),
    more=st.floats(1, 4),
    faster=st.sampled_from(
        ["bandwidth", "kv_bandwidth", "decode_flops", "prefill_flops", "attention_flops"]
    ),
)
def test_a_faster_machine_is_never_slower_and_more_work_never_faster(
    name: str, rows: float, context: float, more: float, faster: str
) -> None:
    machine = gpus()
    better = replace(machine, **{faster: getattr(machine, faster) * more})
    slow, fast = served(name, machine), served(name, better)
    step = slow.decode_step(rows=rows, context=context)
    assert fast.decode_step(rows=rows, context=context).total_s <= step.total_s
    assert slow.decode_step(rows=rows * more, context=context).total_s >= step.total_s
    assert slow.decode_step(rows=rows, context=context * more).total_s >= step.total_s
    prefill = slow.prefill(new=rows, cached=context, chunk=512)
    assert fast.prefill(new=rows, cached=context, chunk=512).total_s <= prefill.total_s
    assert slow.prefill(new=rows * more, cached=context, chunk=512).total_s >= prefill.total_s
    assert slow.prefill(new=rows, cached=context * more, chunk=512).total_s >= prefill.total_s
