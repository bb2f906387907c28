"""Each fault of an engine has its place in the error object."""

import pytest

from gateway.engine_faults import to_gateway_error
from runtime.messages import EngineFault, ErrorCode

EXPECTED = {
    ErrorCode.QUEUE_TIMEOUT: (503, "queue_timeout", 1),
    ErrorCode.DEADLINE_EXCEEDED: (504, "deadline_exceeded", None),
    ErrorCode.OVERLOADED: (503, "server_is_overloaded", 1),
    ErrorCode.INVALID_REQUEST: (400, "invalid_value", None),
    ErrorCode.CONSTRAINT_FAILED: (500, "constraint_failed", None),
    ErrorCode.NO_TOKEN_LEFT: (400, "constraint_failed", None),
    ErrorCode.ENGINE_DIED: (503, "engine_died", 1),
    ErrorCode.INTERNAL: (500, "internal_error", None),
}


@pytest.mark.parametrize("code", ErrorCode)
def test_every_fault_has_a_status_a_code_and_its_message(code: ErrorCode) -> None:
    error = to_gateway_error(EngineFault(code=code, message="what happened"))
    assert (error.status, error.code, error.retry_after_s) == EXPECTED[code]
    assert error.message == "what happened"
