"""Pieces of a chunked answer straight to the connection, for as long as its client keeps up.

Between a route and the socket a body's pieces pass a dozen wrappers of `send` that look at the
answer's start and end alone, which together take as long as everything else that is done for a
token. Our protocol (http_protocol.py) offers this beside `send` in the scope's extensions; another
server does not, and then `send` it is.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from starlette.types import Scope

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

# Takes a piece of the body between the start that `send` was given and the end that it will be
# given. False: nothing was done, as the client has not read what it was sent before, or is gone;
# `send` then waits for it, or finds out.
DirectWrite = Callable[[bytes], bool]

_EXTENSION = "radixgate.direct_write"


def direct_write(scope: Scope) -> DirectWrite | None:
    """That of this request, if its server has one."""
    found: DirectWrite | None = scope.get("extensions", {}).get(_EXTENSION)
    return found


def offer_direct_write(cycle: "RequestResponseCycle") -> None:
    """To be called before the application sees the scope."""
    scope = cast("Scope", cycle.scope)
    scope.setdefault("extensions", {})[_EXTENSION] = partial(_write, cycle)


def _write(cycle: "RequestResponseCycle", piece: bytes) -> bool:
    is_between = cycle.response_started and not cycle.response_complete
    is_taken = is_between and not cycle.disconnected and not cycle.flow.write_paused
    if not is_taken or not cycle.chunked_encoding or not piece:
        return False
    cycle.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
    return True
