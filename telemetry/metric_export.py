"""Sends a server's metrics to a collector, from a thread of its own: a dead or slow one costs
requests nothing. Imports no SDK unless a collector is configured.
"""

import logging
import os
import threading
from typing import Protocol

from telemetry.metrics import Metrics
from telemetry.outage import Outage
from telemetry.settings import read_metric_settings

_logger = logging.getLogger(__name__)

# As for traces: long enough for one export to a healthy collector, short enough for a shutdown.
DRAIN_S = 3.0
_STOP_S = 0.5


class Sender(Protocol):
    """What makes a message of all metrics and sends it; telemetry.otlp_metrics has one."""

    target: str

    def send(self) -> bool:
        """Whether the collector took them. Blocks for as long as that takes."""

    def stop(self) -> None:
        """Ends a send() in another thread, as soon as may be, and fails all later ones."""


class MetricExport:
    """One per server. Each attempt is counted in the metrics themselves."""

    def __init__(self, sender: Sender, metrics: Metrics, *, interval_s: float) -> None:
        self._sender = sender
        self._metrics = metrics
        self._interval_s = interval_s
        self._is_over = threading.Event()
        self._is_given_up = False
        self._outage = Outage(
            _logger, "metrics", target=sender.target, consequence="/metrics has them as before"
        )
        self._thread = threading.Thread(target=self._run, name="metric-export", daemon=True)

    @classmethod
    def from_environment(cls, metrics: Metrics, *, service_version: str) -> "MetricExport | None":
        """None unless OTEL_EXPORTER_OTLP_ENDPOINT (or _METRICS_ENDPOINT) is set.

        Raises: SetupError when an OTEL_* variable cannot work.
        """
        settings = read_metric_settings(os.environ)
        if settings is None:
            return None
        from telemetry.otlp_metrics import make_sender

        sender = make_sender(settings, metrics.registry, service_version=service_version)
        return cls(sender, metrics, interval_s=settings.interval_ms / 1e3)

    def start(self) -> None:
        self._thread.start()

    def close(self, *, drain_s: float | None = None) -> None:
        """Sends once more, and gives up what was not taken within `drain_s` (None = DRAIN_S)."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(DRAIN_S if drain_s is None else drain_s)
        self._is_given_up = True
        self._sender.stop()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def _run(self) -> None:
        while not self._is_over.wait(self._interval_s):
            self._send()
        self._send()

    def _send(self) -> None:
        try:
            is_exported = self._sender.send()
        except Exception:  # one that we make wrongly must not be the last
            _logger.exception("metrics could not be sent")
            is_exported = False
        self._metrics.metrics_exported(is_exported)
        if not self._is_given_up:
            self._outage.note(is_exported)
