"""One line in the log for each finished request, where the setting `log_requests` asks for it:
what it was, how it ended and what it took, never what it said."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.generation import Usage
from gateway.request_context import RequestContext
from telemetry.request_trace import Outcome

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """`route` is the template and `model_id` a name that the server has: neither is a client's
    text. `usage` is None where nothing was computed."""

    route: str
    status: int
    outcome: Outcome
    error: str | None
    model_id: str | None
    usage: Usage | None
    finish_reasons: Sequence[str]
    ttft_s: float | None
    duration_s: float


def log_finished(context: RequestContext, request: FinishedRequest) -> None:
    """Fields that do not apply are left out."""
    usage = request.usage
    _logger.info(
        "request finished",
        extra={
            "route": request.route,
            "status": request.status,
            "outcome": request.outcome,
            "error_type": request.error,
            "model": request.model_id,
            "tenant": context.tenant or None,
            "prompt_tokens": None if usage is None else usage.prompt_tokens,
            "cached_tokens": None if usage is None else usage.cached_tokens,
            "output_tokens": None if usage is None else usage.completion_tokens,
            "ttft_ms": _ms(request.ttft_s),
            "duration_ms": _ms(request.duration_s),
            "finish_reasons": ",".join(request.finish_reasons) or None,
            **context.log_fields,
        },
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 1)
