"""Which format a scrape gets."""

import pytest

from telemetry.exposition import wants_openmetrics

# What Prometheus 3 sends.
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; version=1.0.0; charset=utf-8", True),
        (PROMETHEUS, True),
        ("application/openmetrics-text;q=0.2, text/plain;q=0.9", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=much", False),
        ("application/openmetrics-texts", False),
        ("text/html, application/openmetrics-text ; q = 0.5", True),
    ],
)
def test_openmetrics_is_for_who_names_it_and_does_not_want_plain_text_more(
    accept: str, expected: bool
) -> None:
    assert wants_openmetrics(accept) is expected
