"""What the OTEL_* variables ask for."""

from pathlib import Path

import pytest

from telemetry.errors import SetupError
from telemetry.settings import (
    BatchSettings,
    ExportSettings,
    accepts_incoming_context,
    read_export_settings,
    read_metric_settings,
)

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
        (ENDPOINT, "http://"),
        (ENDPOINT, "http://[::1"),
        # Beyond what a clock can wait for the exporting thread would end at once.
        ("OTEL_BSP_SCHEDULE_DELAY", "99999999999999999999"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "86400001"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "1000001"),
        # These the SDK reads for itself, and goes on without or stops with a stack trace.
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "ten"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "0"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "nan"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "deflate"),  # which gRPC has not
        ("OTEL_EXPORTER_OTLP_INSECURE", "yes"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such/file"),
        ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "/no/such/file"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "-5"),
        ("OTEL_SPAN_EVENT_COUNT_LIMIT", "many"),
        ("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", "1.5"),
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


@pytest.mark.parametrize(
    "headers",
    ["no-equals S3CRET", "authorization=S3CRET\x01", "authorization=S3CRET%0Ax", "a b=S3CRET"],
)
@pytest.mark.parametrize("key", ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"])
def test_headers_that_cannot_be_sent_stop_the_start_and_are_not_shown(
    key: str, headers: str
) -> None:
    with pytest.raises(SetupError) as caught:
        read(**{key: headers})
    assert caught.value.key == key
    assert "S3CRET" not in str(caught.value)


def test_what_exporters_take_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("x")
    given = {
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer a%20b==, x-tenant = t,",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2.5",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "GZIP",
        "OTEL_EXPORTER_OTLP_INSECURE": "True",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": str(file),
        "OTEL_SPAN_LINK_COUNT_LIMIT": "0",
    }
    assert read(**given) == read()
    # What is for traces alone counts before what is for both.
    assert read(OTEL_EXPORTER_OTLP_TIMEOUT="ten", OTEL_EXPORTER_OTLP_TRACES_TIMEOUT="1") == read()
    with pytest.raises(SetupError, match="OTEL_EXPORTER_OTLP_TIMEOUT"):
        read_metric_settings({ENDPOINT: "http://c:4317", "OTEL_EXPORTER_OTLP_TIMEOUT": "ten"})


@pytest.mark.parametrize(
    ("endpoint", "protocol"),
    [
        ("http://u:S3CRET@c:port", ""),
        ("http://u:S3CRET@c:port", "grpc"),
        ("http://u:S3CRET@c:port", "http/protobuf"),
        ("ftp://u:S3CRET@c:1?k=S3CRET", "http/protobuf"),
    ],
)
def test_an_endpoint_is_shown_without_its_credentials(endpoint: str, protocol: str) -> None:
    with pytest.raises(SetupError) as caught:
        read(**{ENDPOINT: endpoint, PROTOCOL: protocol})
    assert caught.value.key == ENDPOINT
    assert "S3CRET" not in str(caught.value)


def test_propagators_are_those_that_there_are() -> None:
    assert accepts_incoming_context({})
    assert accepts_incoming_context({"OTEL_PROPAGATORS": "baggage, tracecontext"})
    assert not accepts_incoming_context({"OTEL_PROPAGATORS": "none"})
    with pytest.raises(SetupError, match="OTEL_PROPAGATORS"):
        accepts_incoming_context({"OTEL_PROPAGATORS": "tracecontext,b3"})
