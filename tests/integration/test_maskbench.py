"""The promise on real schemas: no wrong instance in, no right one out, nearly nothing refused."""

import random
from collections.abc import Callable

import pytest

from grammar.bench import BenchOptions, run_bench
from grammar.bench_file import read_cases
from grammar.bench_report import BenchReport
from tests.maskbench_file import maskbench_path, needs_maskbench
from tests.small_vocabulary import small_vocabulary

NUM_SCHEMAS = 120


@needs_maskbench
@pytest.mark.timeout(120)
def test_a_sample_of_real_schemas_is_enforced_exactly(
    record_property: Callable[[str, object], None],
) -> None:
    cases = read_cases(maskbench_path())
    sample = random.Random(5).sample(cases, min(NUM_SCHEMAS, len(cases)))
    results = run_bench(sample, small_vocabulary(), BenchOptions(), on_result=lambda _: None)
    summary = BenchReport(results).summary()
    record_property("summary", summary)
    assert summary["instances"] > NUM_SCHEMAS
    assert (summary["false_accept_ids"], summary["false_reject_ids"]) == ([], [])
    assert (summary["crashed"], summary["failed_instances"]) == (0, 0)
    assert summary["refused"] <= 0.02 * len(sample)
    assert summary["enforced"] >= 0.93 * len(sample)
