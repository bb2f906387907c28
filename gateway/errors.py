"""Every way a request can be refused or fail, and its place in OpenAI's error object.

GatewayError                     status, type, code, param, message, headers
├── InvalidRequest        400    bad value; code and param name it
│   ├── ContextLengthExceeded    prompt (+ max_tokens) does not fit the model
│   └── InvalidConstraint        schema or regex that cannot be enforced
├── Unauthorized          401
├── NotAllowed            403    the key has not the rights for it
├── NotFound              404    unknown url or model
├── MethodNotAllowed      405
├── UploadTimeout         408    the body did not come in time
├── BodyTooLarge          413
├── UnsupportedMediaType  415
├── RateLimited           429    a key's own limit
├── ConstraintUnmet       400    no answer passes its check, or none is left to the model
├── ServerError           500
│   ├── ConstraintViolated       the mask let through what it is there to keep out
│   └── EngineDied        503    the runtime ended with the request in it
├── Overloaded            503    queue full, engine starting or dead
└── DeadlineExceeded      504
"""

import math
from typing import Literal

LimitKind = Literal["requests", "tokens", "concurrency"]


class GatewayError(Exception):
    """Base of all errors with a wire shape."""

    status = 500
    type = "server_error"
    default_code: str | None = None
    # Whether its message may repeat parts of an answer, and so belongs in no log.
    quotes_answer = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code if code is not None else self.default_code
        self.param = param
        self.retry_after_s = retry_after_s

    @property
    def is_refusal(self) -> bool:
        """Whether the request was turned away, rather than failed while it was answered."""
        return self.status < 500 or isinstance(self, Overloaded)

    @property
    def reason(self) -> str:
        """What a refusal counts as in the metrics."""
        return self.code or self.type

    def body(self) -> dict[str, dict[str, str | None]]:
        """The error object; always the four keys."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }

    def headers(self) -> dict[str, str]:
        """Headers that belong to this error."""
        return {} if self.retry_after_s is None else {"retry-after": str(self.retry_after_s)}


class InvalidRequest(GatewayError):
    """A request that can never succeed as it is."""

    status = 400
    type = "invalid_request_error"
    default_code = "invalid_value"


class ContextLengthExceeded(InvalidRequest):
    """Its message names the code: openai 3.x shows the message only, and langchain-openai looks for
    the code in what is shown."""

    default_code = "context_length_exceeded"

    def __init__(self, message: str, *, param: str) -> None:
        super().__init__(f"{message} ({self.default_code})", param=param)


class InvalidConstraint(InvalidRequest):
    default_code = "invalid_json_schema"


class Unauthorized(GatewayError):
    status = 401
    type = "invalid_request_error"
    default_code = "invalid_api_key"

    def headers(self) -> dict[str, str]:
        return {**super().headers(), "www-authenticate": "Bearer"}


class NotAllowed(GatewayError):
    status = 403
    type = "invalid_request_error"
    default_code = "admin_key_required"


class NotFound(GatewayError):
    status = 404
    type = "invalid_request_error"
    default_code = "unknown_url"


class MethodNotAllowed(GatewayError):
    status = 405
    type = "invalid_request_error"
    default_code = "method_not_allowed"


class UploadTimeout(GatewayError):
    """The connection is closed after it: what still comes of the body is no request."""

    status = 408
    type = "invalid_request_error"
    default_code = "request_timeout"

    def headers(self) -> dict[str, str]:
        return {**super().headers(), "connection": "close"}


class BodyTooLarge(GatewayError):
    status = 413
    type = "invalid_request_error"
    default_code = "request_too_large"


class UnsupportedMediaType(GatewayError):
    status = 415
    type = "invalid_request_error"
    default_code = "unsupported_media_type"


class RateLimited(GatewayError):
    """A limit of the caller's own. `wait_s` None: it can never be served as it is, and clients
    that try again by themselves are told not to."""

    status = 429
    type = "requests"
    default_code = "rate_limit_exceeded"

    def __init__(self, message: str, *, kind: LimitKind, wait_s: float | None) -> None:
        retry_after_s = None if wait_s is None else max(1, math.ceil(wait_s))
        super().__init__(message, retry_after_s=retry_after_s)
        self.type = "tokens" if kind == "tokens" else "requests"
        self._kind = kind
        self._wait_s = wait_s

    @property
    def reason(self) -> str:
        return f"rate_limit_{self._kind}"

    def headers(self) -> dict[str, str]:
        if self._wait_s is None:
            return {**super().headers(), "x-should-retry": "false"}
        return {**super().headers(), "retry-after-ms": str(max(1, math.ceil(self._wait_s * 1000)))}


class ServerError(GatewayError):
    status = 500
    type = "server_error"
    default_code = "internal_error"


class ConstraintUnmet(GatewayError):
    """Found while it was answered. No 5xx, after which clients would ask for the same again by
    themselves; and no 422, which clients of OpenAI do not expect."""

    status = 400
    type = "invalid_request_error"
    default_code = "constraint_failed"
    quotes_answer = True

    @property
    def is_refusal(self) -> bool:
        return False


class ConstraintViolated(ServerError):
    default_code = "constraint_failed"
    quotes_answer = True


class EngineDied(ServerError):
    status = 503
    default_code = "engine_died"


class Overloaded(GatewayError):
    status = 503
    type = "server_error"
    default_code = "server_is_overloaded"


class DeadlineExceeded(GatewayError):
    status = 504
    type = "server_error"
    default_code = "deadline_exceeded"
