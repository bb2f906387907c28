"""Errors of the telemetry package.

TelemetryError
└── SetupError    an OTEL_* variable that cannot work
"""


class TelemetryError(Exception):
    """Base of the package's errors."""


class SetupError(TelemetryError):
    """Stops the start; the message is one line with key, value and what is expected."""

    def __init__(self, key: str, value: str, *, expected: str) -> None:
        super().__init__(f"{key}={value!r} cannot work: expected {' '.join(expected.split())}")
        self.key = key
        self.value = value
        self.expected = expected
