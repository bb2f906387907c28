"""The variables of OpenTelemetry that only an export can show to be honoured."""

import pytest

from telemetry.errors import SetupError
from telemetry.settings import MAX_CONTENT_LEN, read_export_settings
from telemetry.tracing import Tracing
from tests.otlp_receiver import ReceivedSpan, otlp_receiver

TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    return monkeypatch


def one_span() -> None:
    """Of a server that ends right after it."""
    tracing = Tracing.from_environment(service_version="1")
    trace = tracing.start_request(method="GET", route="/v1/models", headers={}, tenant_hash=None)
    trace.finish(status=200, outcome="ok")
    tracing.shutdown()
    assert tracing.num_dropped_spans == 0


def test_endpoint_of_traces_is_used_as_it_is_and_before_the_other(
    variables: pytest.MonkeyPatch,
) -> None:
    with otlp_receiver("http/protobuf") as receiver:
        variables.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
        variables.setenv(TRACES_ENDPOINT, f"{receiver.endpoint}/v1/traces")
        one_span()
    assert len(receiver.spans) == 1


def test_endpoint_of_traces_gets_no_path(variables: pytest.MonkeyPatch) -> None:
    with otlp_receiver("http/protobuf") as receiver:
        variables.setenv(TRACES_ENDPOINT, receiver.endpoint)
        variables.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        tracing = Tracing.from_environment(service_version="1")
        tracing.start_request(
            method="GET", route="/v1/models", headers={}, tenant_hash=None
        ).finish(status=200, outcome="ok")
        tracing.shutdown()
    # What listens there answers 404 to anything but /v1/traces.
    assert (receiver.spans, tracing.num_dropped_spans) == ([], 1)


def test_grpc_without_a_scheme_is_insecure_where_it_says_so(
    variables: pytest.MonkeyPatch,
) -> None:
    with otlp_receiver("grpc") as receiver:
        variables.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint.partition("://")[2])
        variables.setenv("OTEL_EXPORTER_OTLP_INSECURE", "true")
        one_span()
    assert len(receiver.spans) == 1


def service_of(span: ReceivedSpan) -> tuple[object, object]:
    return span.resource["service.name"], span.resource["service.instance.id"]


def test_name_of_the_service_wins_over_the_one_in_the_resource(
    variables: pytest.MonkeyPatch,
) -> None:
    with otlp_receiver("http/protobuf") as receiver:
        variables.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        variables.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        resource = "service.name=in-resource,service.instance.id=7"
        variables.setenv("OTEL_RESOURCE_ATTRIBUTES", resource)
        one_span()
        variables.setenv("OTEL_SERVICE_NAME", "by-name")
        one_span()
    assert [service_of(span) for span in receiver.spans] == [("in-resource", "7"), ("by-name", "7")]


@pytest.mark.parametrize(
    "variables_given",
    [
        {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "500"},
        {"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "500"},
        {
            "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "500",
            "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "700",
        },
    ],
)
def test_content_is_no_longer_than_the_limit_of_attributes(
    variables_given: dict[str, str],
) -> None:
    settings = read_export_settings({TRACES_ENDPOINT: "http://c:1", **variables_given})
    assert settings is not None
    assert settings.max_content_len == 500


def test_a_limit_that_is_large_leaves_ours() -> None:
    limit = {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": str(10 * MAX_CONTENT_LEN)}
    settings = read_export_settings({TRACES_ENDPOINT: "http://c:1", **limit})
    assert settings is not None
    assert settings.max_content_len == MAX_CONTENT_LEN


def test_a_limit_that_is_no_number_stops_the_start() -> None:
    limit = {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "long"}
    with pytest.raises(SetupError, match="OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"):
        read_export_settings({TRACES_ENDPOINT: "http://c:1", **limit})


def test_json_over_http_is_refused_in_one_line_that_names_what_works() -> None:
    with pytest.raises(SetupError, match="grpc or http/protobuf"):
        read_export_settings(
            {TRACES_ENDPOINT: "http://c:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}
        )
