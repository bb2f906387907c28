"""Which gateways a runtime knows, and how long each has been silent.

Owned by the runtime loop. Everything here is bounded, so that gateways that come and go, or
strangers that greet for ever, cannot fill the memory.
"""

from collections import OrderedDict

MAX_GATEWAYS = 1024
MAX_EXPELLED = 1024

# The loop may stand still (a long step, a stopped machine) while gateways do talk to the socket;
# more than this of it never counts as their silence.
MAX_TICK_S = 1.0


class GatewayRegistry:
    """Identities by the time they were last heard; time is the sum of the loop's ticks."""

    def __init__(self, *, timeout_s: float, capacity: int = MAX_GATEWAYS) -> None:
        self._timeout_s = timeout_s
        self._capacity = capacity
        self._awake_s = 0.0
        self._last_heard_s: dict[bytes, float] = {}
        self._expelled: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last_heard_s)

    def greet(self, identity: bytes) -> bool:
        """Notes a gateway that is there; False if there is no room for one more."""
        if identity not in self._last_heard_s and len(self) >= self._capacity:
            return False
        self._last_heard_s[identity] = self._awake_s
        return True

    def hear(self, identity: bytes) -> bool:
        """Notes that a known gateway said something; False for an unknown one."""
        if identity not in self._last_heard_s:
            return False
        self._last_heard_s[identity] = self._awake_s
        return True

    def forget(self, identity: bytes) -> None:
        """Removes a gateway whose connection is gone; its identity does not come back."""
        self._last_heard_s.pop(identity, None)

    def expel(self, identity: bytes) -> None:
        """Removes a gateway that may come back and must then hear that its requests are gone."""
        self.forget(identity)
        self._expelled[identity] = None
        if len(self._expelled) > MAX_EXPELLED:
            self._expelled.popitem(last=False)

    def take_expelled(self, identity: bytes) -> bool:
        """Whether this gateway was expelled and not told yet; asking counts as telling."""
        if identity not in self._expelled:
            return False
        del self._expelled[identity]
        return True

    def tick(self, elapsed_s: float) -> list[bytes]:
        """Moves the time on; returns the gateways that are silent for too long."""
        self._awake_s += min(elapsed_s, MAX_TICK_S)
        oldest_s = self._awake_s - self._timeout_s
        return [one for one, heard_s in self._last_heard_s.items() if heard_s < oldest_s]
