"""The cheap histogram tells what the library's own would."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest
from prometheus_client.samples import Exemplar

from telemetry.metric_definition import MetricDefinition
from telemetry.token_histogram import TokenHistogram

BOUNDS = (0.0025, 0.01, 1.0, 80.0)
METRIC = MetricDefinition("gap_seconds", "histogram", "Gaps.", "s", buckets=BOUNDS)
values = st.one_of(
    st.sampled_from([0.0, *BOUNDS]), st.floats(0, 100), st.floats(min_value=80.0, max_value=1e9)
)


def exposition(observed: Sequence[tuple[float, int]]) -> tuple[bytes, bytes]:
    """By both histograms."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    cheap = TokenHistogram(METRIC)
    ours.register(cheap)
    plain = Histogram("gap_seconds", "Gaps.", buckets=BOUNDS, registry=theirs)
    for value, count in observed:
        cheap.observe(value, count)
        for _ in range(count):
            plain.observe(value)
    return generate_latest(ours), generate_latest(theirs)


def without_sum(text: bytes) -> list[bytes]:
    return [line for line in text.splitlines() if b"_sum" not in line]


def sum_of(text: bytes) -> float:
    (line,) = [line for line in text.splitlines() if line.startswith(b"gap_seconds_sum")]
    return float(line.split()[1])


def test_nothing_observed_looks_the_same() -> None:
    ours, theirs = exposition([])
    assert ours == theirs


@settings(derandomize=True)
@given(st.lists(st.tuples(values, st.integers(1, 5)), max_size=10))
def test_any_values_look_the_same(observed: list[tuple[float, int]]) -> None:
    ours, theirs = exposition(observed)
    assert without_sum(ours) == without_sum(theirs)
    assert sum_of(ours) == pytest.approx(sum_of(theirs))


def test_a_value_on_a_bound_is_in_its_bucket() -> None:
    ours, _ = exposition([(0.01, 3)])
    assert b'gap_seconds_bucket{le="0.0025"} 0.0\ngap_seconds_bucket{le="0.01"} 3.0\n' in ours


def test_a_bucket_has_the_last_example_of_its_values() -> None:
    moments = iter([1.0, 2.0, 3.0])
    histogram = TokenHistogram(METRIC, clock=lambda: next(moments))
    for value, trace in [(0.005, "a"), (0.006, "b"), (0.007, None), (99.0, "c")]:
        histogram.observe(value, exemplar=None if trace is None else {"trace_id": trace})
    (family,) = histogram.collect()
    found = {
        sample.labels["le"]: sample.exemplar
        for sample in family.samples
        if sample.name.endswith("_bucket")
    }
    assert found == {
        "0.0025": None,
        "0.01": Exemplar({"trace_id": "b"}, 0.006, 2.0),
        "1.0": None,
        "80.0": None,
        "+Inf": Exemplar({"trace_id": "c"}, 99.0, 3.0),
    }
