"""What the parts that handle one HTTP request share; owned by the outermost middleware."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.types import Scope

from gateway.accounts import ANONYMOUS, Account

if TYPE_CHECKING:
    from gateway.observation import Observation

REQUEST_ID_HEADER = "x-request-id"
_KEY = "radixgate"


@dataclass(eq=False, slots=True)
class RequestContext:
    """`response_headers` are added to whatever response is sent, an error's too. `account` is
    whose key it came with. `observation` is None on paths that are not traced. Without
    `shows_content` nothing that may quote what was said is logged."""

    request_id: str
    response_headers: dict[str, str] = field(default_factory=dict)
    account: Account = ANONYMOUS
    observation: "Observation | None" = None
    shows_content: bool = False

    def rename(self, request_id: str) -> None:
        """The name that the request's body gives itself."""
        self.request_id = request_id
        self.response_headers[REQUEST_ID_HEADER] = request_id
        if self.observation is not None:
            self.observation.rename(request_id)

    @property
    def tenant(self) -> str:
        """A hash that is safe to log."""
        return self.account.tenant

    @property
    def log_fields(self) -> dict[str, str]:
        """`extra` of a log call, so that its line is found from the answer and from the trace."""
        fields = {"request_id": self.request_id}
        if self.observation is not None:
            fields["trace_id"] = self.observation.trace.trace_id
            fields["span_id"] = self.observation.trace.span_id
        return fields

    def attach(self, scope: Scope) -> None:
        scope[_KEY] = self


def request_context(scope: Scope) -> RequestContext:
    """The context of the request that this scope belongs to."""
    context = scope[_KEY]
    assert isinstance(context, RequestContext)
    return context
