"""What a URL of a Redis must look like. Messages never repeat it, as it may hold a password."""

import re
from urllib.parse import urlsplit


class RedisURLError(ValueError):
    """The URL is none of a Redis. The message does not repeat it, as it may hold a password."""


def check_redis_url(url: str) -> None:
    """Refuses what the client's own parser takes for another thing than was meant.

    Raises: RedisURLError.
    """
    try:
        parts = urlsplit(url)
        has_place = bool(parts.hostname) and parts.port != 0
    except ValueError:
        has_place, parts = False, urlsplit("")
    if parts.scheme == "unix" and parts.path:
        return
    if parts.scheme not in ("redis", "rediss") or not has_place:
        raise RedisURLError("expected redis://HOST:PORT/0, rediss:// or unix:///PATH")
    if not re.fullmatch(r"/?\d*", parts.path):
        raise RedisURLError("expected the number of a database after the last slash")
