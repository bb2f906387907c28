"""From a request to the validated fields of its body; one reader for all routes that take one."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request

from gateway.errors import Overloaded, UploadTimeout
from gateway.lifecycle import Lifecycle
from gateway.middleware import IGNORED_HEADER
from gateway.parameters import BodyRules, ignored_header
from gateway.request_context import RequestContext, request_context
from gateway.validation import check_content_type, decode_object

T = TypeVar("T")

# A larger body is read in a worker: this much of the costliest kind takes 10 ms.
MAX_INLINE_BYTES = 64 * 1024


class BodyReader:
    """Made once per app; owns the worker that reads large bodies."""

    def __init__(self, lifecycle: Lifecycle, *, timeout_s: float) -> None:
        """`timeout_s` is how long a body may be on its way; 0 = any time."""
        self._lifecycle = lifecycle
        self._timeout_s = timeout_s
        # One: two would only take the interpreter from the loop and each other. It is busy until a
        # body is read, even if its client leaves meanwhile.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="read-body")

    async def read(
        self,
        request: Request,
        rules: BodyRules,
        parse: Callable[[dict[str, Any], tuple[str, ...]], T],
    ) -> T:
        """What `parse` makes of the body. It gets it without its nulls, with the names of
        parameters that have no effect; for a large body it is called in a worker.

        Raises: a GatewayError with status 400, 408, 413, 415 or 503.
        """
        if self._lifecycle.is_draining:
            raise Overloaded("The server is stopping; try again later.", retry_after_s=1)
        check_content_type(request.headers)
        raw = await self._body(request)
        read = partial(_read, raw, rules, context=request_context(request.scope), parse=parse)
        if len(raw) <= MAX_INLINE_BYTES:
            return read()
        return await asyncio.get_running_loop().run_in_executor(self._worker, read)

    async def _body(self, request: Request) -> bytes:
        """Raises: UploadTimeout."""
        try:
            async with asyncio.timeout(self._timeout_s or None):
                return await request.body()
        except TimeoutError:
            raise UploadTimeout("The request's body did not arrive in time.") from None


def _read(
    raw: bytes,
    rules: BodyRules,
    *,
    context: RequestContext,
    parse: Callable[[dict[str, Any], tuple[str, ...]], T],
) -> T:
    body = decode_object(raw)
    ignored = tuple(rules.check(body))
    if ignored:  # said even if the request is then refused
        context.response_headers[IGNORED_HEADER] = ignored_header(ignored)
        if context.observation is not None:
            context.observation.ignored(rules.known(ignored))
    return parse({name: value for name, value in body.items() if value is not None}, ignored)
