"""What the OTEL_* variables ask for."""

import pytest

from telemetry.errors import SetupError
from telemetry.settings import BatchSettings, ExportSettings, read_export_settings

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"


def read(**environment: str) -> ExportSettings:
    settings = read_export_settings({ENDPOINT: "http://c:4317", **environment})
    assert settings is not None
    return settings


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {ENDPOINT: ""},
        {ENDPOINT: "http://c:4317", "OTEL_SDK_DISABLED": "TRUE"},
        {ENDPOINT: "http://c:4317", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_nothing_is_exported_unless_an_endpoint_is_set_and_the_sdk_is_on(
    environment: dict[str, str],
) -> None:
    assert read_export_settings(environment) is None


def test_defaults_are_the_specifications() -> None:
    assert read() == ExportSettings(
        endpoint="http://c:4317",
        protocol="grpc",
        sampler="parentbased_always_on",
        sampler_ratio=1.0,
        batch=BatchSettings(5000, 30_000, 2048, 512),
    )


@pytest.mark.parametrize(
    ("endpoint", "protocol"),
    [
        ("http://c:4317", "grpc"),
        ("c:4317", "grpc"),
        ("http://c:9999", "grpc"),
        ("http://c:4318", "http/protobuf"),
        ("https://c/otlp", "http/protobuf"),
    ],
)
def test_an_unnamed_protocol_follows_the_port_and_path(endpoint: str, protocol: str) -> None:
    assert read(**{ENDPOINT: endpoint}).protocol == protocol


def test_variables_for_traces_win() -> None:
    settings = read(
        **{
            TRACES_ENDPOINT: "http://t:1/v1/traces",
            PROTOCOL: "grpc",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        }
    )
    assert (settings.endpoint, settings.protocol) == ("http://t:1/v1/traces", "http/protobuf")


def test_batch_and_sampler_are_read() -> None:
    settings = read(
        OTEL_BSP_SCHEDULE_DELAY="100",
        OTEL_BSP_EXPORT_TIMEOUT="200",
        OTEL_BSP_MAX_QUEUE_SIZE="64",
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE="32",
        OTEL_TRACES_SAMPLER="parentbased_traceidratio",
        OTEL_TRACES_SAMPLER_ARG="0.1",
    )
    assert settings.batch == BatchSettings(100, 200, 64, 32)
    assert (settings.sampler, settings.sampler_ratio) == ("parentbased_traceidratio", 0.1)


def test_a_small_queue_alone_makes_the_default_batch_smaller() -> None:
    assert read(OTEL_BSP_MAX_QUEUE_SIZE="64").batch.max_export_batch_size == 64


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (PROTOCOL, "http/json"),
        (PROTOCOL, "udp"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "udp"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ("OTEL_BSP_SCHEDULE_DELAY", "soon"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096"),
        (ENDPOINT, "http://c:port"),
    ],
)
def test_a_value_that_cannot_work_stops_the_start_with_one_line(key: str, value: str) -> None:
    with pytest.raises(SetupError) as caught:
        read(**{key: value})
    assert caught.value.key == key
    assert key in str(caught.value)
    assert value in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ratio", ["2", "-0.1", "half", "nan"])
def test_a_ratio_outside_zero_to_one_stops_the_start(ratio: str) -> None:
    with pytest.raises(SetupError, match="OTEL_TRACES_SAMPLER_ARG"):
        read(OTEL_TRACES_SAMPLER="traceidratio", OTEL_TRACES_SAMPLER_ARG=ratio)


@pytest.mark.parametrize("key", [ENDPOINT, TRACES_ENDPOINT])
def test_http_needs_a_url_with_a_scheme(key: str) -> None:
    with pytest.raises(SetupError) as caught:
        read(**{key: "collector:4318", PROTOCOL: "http/protobuf"})
    assert caught.value.key == key
