"""What a collector answers over HTTP, looked at where the SDK does not: it takes a redirect for
success, ignores how much was rejected, and reads an answer that never ends.

setup.py and otlp_metrics.py give the session to their exporters.
"""

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from telemetry.outage import last_words

if TYPE_CHECKING:
    import requests

_MAX_BYTES = 16 * 1024
_MAX_MESSAGE_LEN = 200
_PROTOBUF = "application/x-protobuf"
# Sessions of others, which authenticate at a cloud's collector; the SDK asks these for them.
_PROVIDERS = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_{signal}_CREDENTIAL_PROVIDER",
)


class Rejected:
    """How much of what was sent last a collector did not want. The exporting thread owns it."""

    def __init__(self) -> None:
        self._num = 0

    def note(self, num_rejected: int, message: str) -> None:
        self._num = num_rejected
        last_words.keep(f"it rejected {num_rejected}: {message[:_MAX_MESSAGE_LEN]}")

    def take(self) -> int:
        num, self._num = self._num, 0
        return num


def make_session(rejected: Rejected, signal: str) -> "requests.Session | None":
    """None where variables name another one."""
    if any(os.environ.get(key.format(signal=signal)) for key in _PROVIDERS):
        return None
    import requests

    session = requests.Session()
    session.stream = True  # or all of an answer would be read
    session.hooks["response"].append(partial(_look_at, rejected))
    return session


def _look_at(
    rejected: Rejected, response: "requests.Response", *, timeout: float | None = None, **_: Any
) -> None:
    """Raises: what the SDK takes for a failed attempt."""
    from requests.exceptions import RequestException

    try:
        if 300 <= response.status_code < 400:
            place = response.headers.get("location", "nowhere")
            raise RequestException(f"it answers {response.status_code} and wants {place} asked")
        if response.status_code < 300:
            _read_verdict(rejected, response, time.monotonic() + (timeout or 0.0))
    finally:
        response.close()


def _read_verdict(rejected: Rejected, response: "requests.Response", until: float) -> None:
    from requests.exceptions import RequestException, Timeout

    body = bytearray()
    # More at a time would be waited for, however slowly it comes.
    for byte in response.iter_content(1):
        body += byte
        if len(body) > _MAX_BYTES:
            raise RequestException(f"its answer has more than {_MAX_BYTES} bytes")
        if time.monotonic() > until:
            raise Timeout("its answer does not end")
    if response.headers.get("content-type", "").partition(";")[0].strip() != _PROTOBUF:
        return
    try:
        # That for metrics has the same fields.
        verdict = ExportTraceServiceResponse.FromString(bytes(body)).partial_success
    except DecodeError:
        return
    if verdict.rejected_spans > 0:
        rejected.note(verdict.rejected_spans, verdict.error_message)
