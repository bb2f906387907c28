"""A server under load: where it is, and what every request to it has."""

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


class TargetError(Exception):
    """The server cannot be measured; the message is one line that says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """`path` is what comes before /chat/completions; `headers` come beside those of every request.
    Nothing here is shown but `url`, as keys are secrets."""

    url: str
    scheme: str
    host: str
    port: int
    path: str
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, url: str, api_key: str | None, *, headers: Mapping[str, str] | None = None
    ) -> "Target":
        """Raises: TargetError."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise TargetError(f"{url}: {error}") from None
        if parts.scheme not in _PORTS or not parts.hostname:
            raise TargetError(f"{url}: expected a URL such as http://127.0.0.1:8000/v1")
        if "@" in parts.netloc:
            raise TargetError("a URL with a name or a password in it: give a key in OPENAI_API_KEY")
        if parts.query or parts.fragment:
            raise TargetError(f"{url}: expected a URL without a query")
        if not (url.isascii() and url.isprintable() and " " not in url):
            raise TargetError(f"{url!r}: it has characters that no URL has")
        if api_key is not None and not _is_header_value(api_key):
            raise TargetError("the key has characters that no key has")
        for name, value in (headers or {}).items():
            if not _is_header_value(value):
                raise TargetError(f"the value of the header {name} has characters that none has")
        return cls(
            url,
            parts.scheme,
            parts.hostname,
            port if port is not None else _PORTS[parts.scheme],
            parts.path.rstrip("/"),
            api_key,
            headers or {},
        )

    def tls(self) -> ssl.SSLContext | None:
        """Certificates are checked as everywhere."""
        return ssl.create_default_context() if self.scheme == "https" else None

    def request_head(self, method: str, path: str, *, keeps_open: bool) -> bytes:
        """All of a request before the length of its body."""
        headers = {
            "Host": self._host_header(),
            "User-Agent": "radixgate-bench",
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "Connection": "keep-alive" if keeps_open else "close",
            **({"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}),
            **self.headers,
        }
        lines = [f"{method} {self.path}{path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, ""]).encode()

    def _host_header(self) -> str:
        host = self.host
        try:
            host = f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
        except ValueError:
            pass  # a name
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def _is_header_value(text: str) -> bool:
    return text.isascii() and text.isprintable()
