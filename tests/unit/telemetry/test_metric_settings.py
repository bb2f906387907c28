"""What the OTEL_* variables ask for of metrics."""

import pytest

from telemetry.errors import SetupError
from telemetry.settings import MetricSettings, read_export_settings, read_metric_settings

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
METRICS_ENDPOINT = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"


def read(**environment: str) -> MetricSettings:
    settings = read_metric_settings({ENDPOINT: "http://c:4317", **environment})
    assert settings is not None
    return settings


def test_defaults_are_the_specifications() -> None:
    assert read() == MetricSettings("http://c:4317", "grpc", interval_ms=60_000)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {ENDPOINT: " "},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4317"},
        {ENDPOINT: "http://c:4317", "OTEL_SDK_DISABLED": "true"},
        {ENDPOINT: "http://c:4317", "OTEL_METRICS_EXPORTER": "none"},
    ],
)
def test_nothing_is_exported_unless_an_endpoint_for_metrics_is_set(
    environment: dict[str, str],
) -> None:
    assert read_metric_settings(environment) is None


def test_variables_for_metrics_win() -> None:
    settings = read(
        **{
            METRICS_ENDPOINT: "http://m/v1/metrics",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
            INTERVAL: "250",
        }
    )
    assert settings == MetricSettings("http://m/v1/metrics", "http/protobuf", interval_ms=250)


def test_traces_and_metrics_are_turned_off_apart() -> None:
    environment = {ENDPOINT: "http://c:4317", "OTEL_METRICS_EXPORTER": "none"}
    assert read_export_settings(environment) is not None
    environment = {ENDPOINT: "http://c:4317", "OTEL_TRACES_EXPORTER": "none"}
    assert read_export_settings(environment) is None
    assert read_metric_settings(environment) is not None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("OTEL_METRICS_EXPORTER", "prometheus"),
        (INTERVAL, "0"),
        (INTERVAL, "soon"),
        (INTERVAL, "99999999999999999999"),
        ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "zip"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
        (
            "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
            "base2_exponential_bucket_histogram",
        ),
    ],
)
def test_a_value_that_cannot_work_is_named(key: str, value: str) -> None:
    with pytest.raises(SetupError) as caught:
        read(**{key: value})
    assert key in str(caught.value)
    assert value in str(caught.value)


def test_a_bad_endpoint_for_metrics_is_named_as_such() -> None:
    with pytest.raises(SetupError, match=METRICS_ENDPOINT):
        read(
            **{
                METRICS_ENDPOINT: "c:4318",
                "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
            }
        )


def test_what_is_set_to_what_is_done_anyway_is_fine() -> None:
    key = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
    assert read(**{key: "CUMULATIVE"}) == read()
