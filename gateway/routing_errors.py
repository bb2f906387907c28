"""What is said of a path that nothing answers to, or to which another method belongs."""

import re
from collections.abc import Iterator, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from gateway.errors import GatewayError, InvalidRequest, MethodNotAllowed, NotFound
from gateway.http_path import route_path
from gateway.middleware import error_response

MAX_SHOWN_PATH_CHARS = 200
# Longer paths are told from none that is served, and not compared with any.
MAX_COMPARED_PATH_CHARS = 1_000
# Of the whole API, and of what other servers offer beside it. Clients find out here that a server
# that speaks this API does not have to have all of it.
NOT_SERVED = frozenset(
    "api assistants audio batches chatkit classify containers conversations evals files fine-tunes"
    " fine_tuning generate images infill invocations messages moderations organization pooling"
    " props realtime rerank score slots threads uploads vector_stores videos".split()
)
_VERSION = re.compile(r"^/(?:v1/)+")


class RoutingErrors:
    """Handles the router's own exceptions; `routes` are all that the app has."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)

    async def __call__(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        told = self._told(request, error)
        if not isinstance(told, MethodNotAllowed):
            return error_response(told, error.headers)
        methods = self._methods(request, route_path(request.scope))
        return error_response(told, {"allow": ", ".join(methods)})

    def _told(self, request: Request, error: HTTPException) -> GatewayError:
        path = route_path(request.scope)
        target = f"{request.method} {path[:MAX_SHOWN_PATH_CHARS]}"
        if error.status_code == 404:
            return NotFound(f"Unknown request URL: {target}.{self._advice(request, path)}")
        if error.status_code == 405:
            methods = ", ".join(self._methods(request, path))
            return MethodNotAllowed(f"Not allowed to {target}: use {methods}.")
        return InvalidRequest(error.detail)

    def _methods(self, request: Request, path: str) -> list[str]:
        """All that some route takes at this path, which one route's own 405 does not know."""
        return sorted(
            {method for route in self._at(request, path) for method in route.methods or ()}
        )

    def _at(self, request: Request, path: str) -> Iterator[Route]:
        scope = {**request.scope, "path": path, "root_path": ""}
        return (route for route in self.routes if route.matches(scope)[0] is not Match.NONE)

    def _advice(self, request: Request, path: str) -> str:
        if len(path) > MAX_COMPARED_PATH_CHARS:
            return ""
        for candidate in _likely(path):
            if candidate != path and any(True for _ in self._at(request, candidate)):
                return f" Did you mean {candidate}?"
        family = _VERSION.sub("", path).lstrip("/").partition("/")[0]
        if family in NOT_SERVED:
            return f" The API's '{family}' are not served here: GET /openapi.json says what is."
        return ""


def _likely(path: str) -> Iterator[str]:
    """The path as it was probably meant: without slashes too many, with /v1 exactly once, or
    without it."""
    plain = "/" + "/".join(part for part in path.split("/") if part)
    bare = _VERSION.sub("/", plain)
    yield from (plain, "/v1" + bare, bare)
