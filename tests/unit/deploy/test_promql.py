"""The reader of queries: a check that it reads too little of would check too little."""

import pytest

from tests.metric_queries import problems
from tests.promql import Matcher, Selector, UnreadableQuery, outer_labels, selectors

NONE: frozenset[str] = frozenset()


def test_metrics_are_told_from_functions_words_and_numbers() -> None:
    query = 'histogram_quantile(0.95, sum by (le) (rate(a_bucket{x="1", y=~"b|c"}[5m]))) > 1e3 or d'
    matchers = (Matcher("x", "=", "1"), Matcher("y", "=~", "b|c"))
    assert selectors(query) == [
        Selector("a_bucket", matchers, frozenset({"le"})),
        Selector("d", (), NONE),
    ]


def test_labels_of_an_aggregation_hold_inside_of_it_only() -> None:
    found = selectors("sum by (x) (a) / on (y) group_left () max(b) * c offset 1h")
    assert [(one.metric, one.grouped_by) for one in found] == [
        ("a", frozenset("x")),
        ("b", frozenset("y")),
        ("c", NONE),
    ]


def test_the_variables_of_dashboards_are_read_as_ranges() -> None:
    assert [s.metric for s in selectors("rate(a[$__rate_interval]) + increase(b[$__range])")] == [
        "a",
        "b",
    ]


@pytest.mark.parametrize("query", ["sum(a) by (x)", "sum(a", "a)", 'a{x~"1"}', "a ? b"])
def test_what_it_cannot_read_is_an_error(query: str) -> None:
    with pytest.raises(UnreadableQuery):
        selectors(query)


@pytest.mark.parametrize(
    ("query", "labels"),
    [
        ("sum by (a, b) (rate(x[5m]))", frozenset({"a", "b"})),
        ("3600 * sum by (a) (x)", frozenset({"a"})),
        ("sum(rate(x[5m]))", None),
    ],
)
def test_the_outermost_labels_are_those_of_the_result(
    query: str, labels: frozenset[str] | None
) -> None:
    assert outer_labels(query) == labels


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("rate(radixgate_requests[5m])", "there is no metric radixgate_requests"),
        ("radixgate_queue_seconds", "there is no metric radixgate_queue_seconds"),
        ("radixgate:gone:5m", "there is no metric radixgate:gone:5m"),
        ('radixgate_engine_up{tier="disk"}', "radixgate_engine_up has no label tier"),
        ("sum by (le) (radixgate_engine_up)", "radixgate_engine_up has no label le"),
        ('radixgate_kv_pages{state="lost"}', "radixgate_kv_pages: state is never lost"),
        (
            'radixgate_requests_total{outcome=~"ok|fine"}',
            "radixgate_requests_total: outcome is never fine",
        ),
    ],
)
def test_a_query_that_can_find_nothing_is_told_why(query: str, problem: str) -> None:
    assert problems(query) == [problem]


def test_a_query_that_can_find_something_is_fine() -> None:
    assert problems('sum by (le, instance) (radixgate_queue_seconds_bucket{job="gateway"})') == []
