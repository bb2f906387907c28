"""What the OTEL_* variables ask for, read once. Imports no SDK.

A value that cannot work stops the start instead of being replaced by a default.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from telemetry.errors import SetupError
from telemetry.exporter_variables import check_exporter, check_span_limits

Protocol = Literal["grpc", "http/protobuf"]
SamplerName = Literal[
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
]

Signal = Literal["TRACES", "METRICS"]

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
_HTTP_PORT = 4318
_SAMPLERS: tuple[SamplerName, ...] = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)

# Of an attribute with content. Whole conversations are no use in a trace, and receivers take a few
# megabytes a batch.
MAX_CONTENT_LEN = 65_536
# All other texts in spans are shorter; this is for what will be forgotten one day.
_LENGTH_LIMITS = ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")

EXPORT_INTERVAL_MS = 60_000
# Longer waits than a day are a slip, and at some length too long for the clock.
_MAX_MS = 86_400_000
# Of some 2 KB each.
_MAX_QUEUE_SIZE = 1_000_000
# What the header of a caller can be read by; the SDK comes with a parser of baggage as well.
_PROPAGATORS = ("tracecontext", "baggage", "none")
# What metrics are exported as, and the variables that could ask for something else.
_FIXED = {
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "cumulative",
    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": "explicit_bucket_histogram",
}

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """OTEL_BSP_*; the defaults are the specification's."""

    schedule_delay_ms: int = 5000
    export_timeout_ms: int = 30_000
    max_queue_size: int = 2048
    max_export_batch_size: int = 512


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """Where traces go. `endpoint` is for the log; the exporter reads its variables itself."""

    endpoint: str
    protocol: Protocol
    sampler: SamplerName
    sampler_ratio: float
    batch: BatchSettings
    max_content_len: int = MAX_CONTENT_LEN


@dataclass(frozen=True, slots=True)
class MetricSettings:
    """Where metrics go, and how often. `endpoint` is for the log, as in ExportSettings."""

    endpoint: str
    protocol: Protocol
    interval_ms: int


def read_export_settings(environment: Mapping[str, str]) -> ExportSettings | None:
    """None when nothing is to be exported.

    Raises: SetupError naming the variable that cannot work.
    """
    endpoint = _endpoint(environment, "TRACES")
    if endpoint is None:
        return None
    sampler = _sampler(environment)
    protocol = _protocol(environment, endpoint, "TRACES")
    check_exporter(environment, "TRACES", protocol)
    check_span_limits(environment)
    return ExportSettings(
        endpoint=endpoint,
        protocol=protocol,
        sampler=sampler,
        sampler_ratio=_ratio(environment, sampler),
        batch=_batch(environment),
        max_content_len=_max_content_len(environment),
    )


def read_metric_settings(environment: Mapping[str, str]) -> MetricSettings | None:
    """None when no metrics are to be exported.

    Raises: SetupError naming the variable that cannot work.
    """
    endpoint = _endpoint(environment, "METRICS")
    if endpoint is None:
        return None
    for key, only in _FIXED.items():
        if (_text(environment, key) or only).lower() != only:
            raise SetupError(key, _text(environment, key), expected=f"{only}, or nothing")
    protocol = _protocol(environment, endpoint, "METRICS")
    check_exporter(environment, "METRICS", protocol)
    return MetricSettings(
        endpoint=endpoint,
        protocol=protocol,
        interval_ms=_positive(
            environment, "OTEL_METRIC_EXPORT_INTERVAL", EXPORT_INTERVAL_MS, maximum=_MAX_MS
        ),
    )


def accepts_incoming_context(environment: Mapping[str, str]) -> bool:
    """Whether callers may continue their traces here: OTEL_PROPAGATORS names tracecontext.

    Raises: SetupError for one that there is not.
    """
    text = _text(environment, "OTEL_PROPAGATORS") or "tracecontext"
    names = [name.strip() for name in text.split(",")]
    if not set(names) <= set(_PROPAGATORS):
        raise SetupError("OTEL_PROPAGATORS", text, expected="some of " + ", ".join(_PROPAGATORS))
    return "tracecontext" in names


def without_credentials(endpoint: str) -> str:
    """As it may be logged."""
    scheme, separator, rest = endpoint.partition("?")[0].rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _text(environment: Mapping[str, str], key: str) -> str:
    # An empty variable counts as unset, as the specification asks.
    return environment.get(key, "").strip()


def _endpoint_key(environment: Mapping[str, str], signal: Signal) -> str:
    own = f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
    return own if _text(environment, own) else _ENDPOINT


def _endpoint(environment: Mapping[str, str], signal: Signal) -> str | None:
    """None when nothing of this signal is to be exported."""
    endpoint = _text(environment, _endpoint_key(environment, signal))
    is_disabled = _text(environment, "OTEL_SDK_DISABLED").lower() == "true"
    if is_disabled or not endpoint or not _wants_otlp(environment, signal):
        return None
    _check_url(_endpoint_key(environment, signal), endpoint)
    return endpoint


def _check_url(key: str, endpoint: str) -> None:
    """gRPC's own targets are none, and left to it."""
    try:
        url = urlsplit(endpoint)
        is_nowhere = url.scheme in ("http", "https") and not (url.hostname and url.port != 0)
    except ValueError as error:
        shown = without_credentials(endpoint)
        raise SetupError(key, shown, expected=f"a URL ({error})") from error
    if is_nowhere:
        raise SetupError(key, without_credentials(endpoint), expected="a URL with a host")


def _wants_otlp(environment: Mapping[str, str], signal: Signal) -> bool:
    key = f"OTEL_{signal}_EXPORTER"
    name = _text(environment, key) or "otlp"
    if name not in ("otlp", "none"):
        raise SetupError(key, name, expected="otlp or none")
    return name == "otlp"


def _protocol(environment: Mapping[str, str], endpoint: str, signal: Signal) -> Protocol:
    own, endpoint_key = f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", _endpoint_key(environment, signal)
    key = own if _text(environment, own) else _PROTOCOL
    name = _text(environment, key) or _usual_protocol(endpoint)
    if name == "grpc":
        return "grpc"
    if name != "http/protobuf":
        raise SetupError(key, name, expected="grpc or http/protobuf")
    if urlsplit(endpoint).scheme not in ("http", "https"):
        expected = "a URL that begins with http:// or https://"
        raise SetupError(endpoint_key, without_credentials(endpoint), expected=expected)
    return "http/protobuf"


def _usual_protocol(endpoint: str) -> str:
    """grpc, except where the URL has the port or a path of OTLP over HTTP."""
    url = urlsplit(endpoint)
    is_web = url.scheme in ("http", "https")
    is_http = is_web and (url.port == _HTTP_PORT or url.path.strip("/") != "")
    return "http/protobuf" if is_http else "grpc"


def _sampler(environment: Mapping[str, str]) -> SamplerName:
    key = "OTEL_TRACES_SAMPLER"
    name = _text(environment, key).lower() or "parentbased_always_on"
    for known in _SAMPLERS:
        if name == known:
            return known
    raise SetupError(key, name, expected="one of " + ", ".join(_SAMPLERS))


def _ratio(environment: Mapping[str, str], sampler: SamplerName) -> float:
    key = "OTEL_TRACES_SAMPLER_ARG"
    if not sampler.endswith("traceidratio"):
        return 1.0
    ratio = _number(environment, key, parse=float, default=1.0, expected="a number from 0 to 1")
    if not 0.0 <= ratio <= 1.0:
        raise SetupError(key, _text(environment, key), expected="a number from 0 to 1")
    return ratio


def _batch(environment: Mapping[str, str]) -> BatchSettings:
    usual = BatchSettings()
    max_queue_size = _positive(
        environment, "OTEL_BSP_MAX_QUEUE_SIZE", usual.max_queue_size, maximum=_MAX_QUEUE_SIZE
    )
    key = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
    batch_size = _positive(environment, key, min(usual.max_export_batch_size, max_queue_size))
    if batch_size > max_queue_size:
        expected = f"at most OTEL_BSP_MAX_QUEUE_SIZE ({max_queue_size})"
        raise SetupError(key, str(batch_size), expected=expected)
    return BatchSettings(
        schedule_delay_ms=_positive(
            environment, "OTEL_BSP_SCHEDULE_DELAY", usual.schedule_delay_ms, maximum=_MAX_MS
        ),
        export_timeout_ms=_positive(
            environment, "OTEL_BSP_EXPORT_TIMEOUT", usual.export_timeout_ms, maximum=_MAX_MS
        ),
        max_queue_size=max_queue_size,
        max_export_batch_size=batch_size,
    )


def _max_content_len(environment: Mapping[str, str]) -> int:
    """No longer than what the SDK would leave of an attribute, as half a JSON text is none."""
    given = [key for key in _LENGTH_LIMITS if _text(environment, key)]
    lengths = [_positive(environment, key, MAX_CONTENT_LEN) for key in given]
    return min(MAX_CONTENT_LEN, *lengths[:1]) if lengths else MAX_CONTENT_LEN


def _positive(
    environment: Mapping[str, str], key: str, default: int, *, maximum: int | None = None
) -> int:
    expected = (
        "a whole number above 0" if maximum is None else f"a whole number from 1 to {maximum}"
    )
    value = _number(environment, key, parse=int, default=default, expected=expected)
    if value <= 0 or (maximum is not None and value > maximum):
        raise SetupError(key, _text(environment, key), expected=expected)
    return value


def _number(
    environment: Mapping[str, str],
    key: str,
    *,
    parse: Callable[[str], _Number],
    default: _Number,
    expected: str,
) -> _Number:
    text = _text(environment, key)
    if not text:
        return default
    try:
        return parse(text)
    except ValueError as error:
        raise SetupError(key, text, expected=expected) from error
