"""GET /ui, a page to look at, and GET /ui/data, what it shows.

The page is open, as a browser sends no key when it opens one, and holds no data. What it shows is
for who may see all tenants.
"""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import InvalidRequest, NotAllowed
from gateway.http_path import READ_METHODS
from gateway.live_report import LiveReport
from gateway.middleware import JSONBody
from gateway.page import Page
from gateway.request_context import request_context

UI = "/ui"
UI_DATA = "/ui/data"
_MAX_DIGITS = 15
MAX_NUMBER = 10**_MAX_DIGITS - 1


def ui_router(report: LiveReport, page: Page) -> APIRouter:
    router = APIRouter()

    @router.api_route(UI, methods=READ_METHODS)
    async def show_page() -> Response:
        return Response(page.body, headers=page.headers)

    @router.api_route(UI_DATA, methods=READ_METHODS)
    async def read_data(request: Request) -> Response:
        if not request_context(request.scope).account.sees_all:
            raise NotAllowed("What the server does is shown to an admin key only.")
        state = report.state(since=_since(request.query_params.get("since")))
        return JSONBody(
            state, headers={"cache-control": "no-store", "x-content-type-options": "nosniff"}
        )

    return router


def _since(given: str | None) -> int:
    """Raises: InvalidRequest."""
    if given is None:
        return 0
    if not (given.isascii() and given.isdecimal() and len(given) <= _MAX_DIGITS):
        raise InvalidRequest(
            f"Invalid value for 'since': it is a number from 0 to {MAX_NUMBER}.", param="since"
        )
    return int(given)
