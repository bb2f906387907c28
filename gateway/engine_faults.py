"""From what an engine says went wrong to what a client is told."""

from gateway.errors import (
    ConstraintUnmet,
    DeadlineExceeded,
    EngineDied,
    GatewayError,
    InvalidRequest,
    Overloaded,
    ServerError,
)
from runtime.messages import EngineFault, ErrorCode

# A client that comes back after a second finds a queue that moved or a runtime that restarted.
RETRY_AFTER_S = 1


def to_gateway_error(fault: EngineFault) -> GatewayError:
    """The error of a request whose choice ended with this fault."""
    code, message = fault.code, fault.message
    match code:
        case ErrorCode.QUEUE_TIMEOUT:
            return Overloaded(message, code=code.value, retry_after_s=RETRY_AFTER_S)
        case ErrorCode.ENGINE_DIED:
            return EngineDied(message, retry_after_s=RETRY_AFTER_S)
        case ErrorCode.OVERLOADED:
            return Overloaded(message, retry_after_s=RETRY_AFTER_S)
        case ErrorCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded(message)
        case ErrorCode.INVALID_REQUEST:
            return InvalidRequest(message)
        case ErrorCode.CONSTRAINT_FAILED:
            return ServerError(message, code=code.value)
        case ErrorCode.NO_TOKEN_LEFT:
            return ConstraintUnmet(message)
        case ErrorCode.INTERNAL:
            return ServerError(message)
