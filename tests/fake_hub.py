"""A stand-in for the Hugging Face hub on a socket of its own: repositories, and their troubles."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "1234567890abcdef1234567890abcdef12345678"
_HOLD_S = 20.0


@dataclass(eq=False)
class FakeHub:
    """`files` of the one repository, at `COMMIT`, which `revisions` name.

    `gets` has path and Range of every file asked for; `requests` every request's method and path.
    `refusal` answers all requests with a status and a code. Of the file `troubled`, a GET sends
    only `sends` bytes; then the connection is cut or, where there is `holds`, `is_held` is set and
    nothing more comes until `holds` is. Its size is announced as `announced`, its tag as `tag`.
    """

    repo: str
    files: dict[str, bytes]
    revisions: tuple[str, ...] = ("main", COMMIT)
    url: str = ""
    refusal: tuple[int, str] | None = None
    is_elsewhere: bool = False
    troubled: str | None = None
    sends: int | None = None
    holds: threading.Event | None = None
    is_held: threading.Event = field(default_factory=threading.Event)
    announced: int | None = None
    tag: str | None = None
    gets: list[tuple[str, str | None]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    tokens: list[tuple[str, str | None]] = field(default_factory=list)

    def fetched(self) -> set[str]:
        return {name for name, _ in self.gets}


@contextmanager
def serving_hub(hub: FakeHub) -> Iterator[FakeHub]:
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield hub
        finally:
            if hub.holds is not None:
                hub.holds.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.requests.append(f"{self.command} {path}")
        hub.tokens.append((path, self.headers.get("authorization")))
        if hub.refusal is not None:
            self._refuse(*hub.refusal)
        elif path.startswith("/elsewhere/"):
            self._file(path.removeprefix("/elsewhere/"))
        elif path.startswith(f"/api/models/{hub.repo}"):
            self._about(path.removeprefix(f"/api/models/{hub.repo}"))
        elif path.startswith(f"/{hub.repo}/resolve/"):
            _, _, _, _, revision, name = path.split("/", 5)
            self._resolve(revision, name)
        else:
            self._refuse(404, "RepoNotFound")

    def _about(self, rest: str) -> None:
        revision = rest.rpartition("/")[2] or "main"
        if revision not in self.hub.revisions:
            self._refuse(404, "RevisionNotFound")
        elif rest.startswith("/tree/"):
            self._json(
                [
                    {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
                    for name, content in self.hub.files.items()
                ]
            )
        else:
            self._json({"id": self.hub.repo, "sha": COMMIT, "siblings": []})

    def _resolve(self, revision: str, name: str) -> None:
        if revision not in self.hub.revisions:
            self._refuse(404, "RevisionNotFound")
        elif name not in self.hub.files:
            self._refuse(404, "EntryNotFound")
        elif self.hub.is_elsewhere and name.endswith((".safetensors", ".gguf")):
            headers = self._headers(name)
            headers["X-Linked-Size"], headers["X-Linked-Etag"] = (
                headers["Content-Length"],
                headers["ETag"],
            )
            elsewhere = self.hub.url.replace("127.0.0.1", "localhost")
            headers |= {"Location": f"{elsewhere}/elsewhere/{name}", "Content-Length": "0"}
            self._start(302, headers)
        else:
            self._file(name)

    def _headers(self, name: str) -> dict[str, str]:
        hub, content = self.hub, self.hub.files[name]
        is_troubled = name == hub.troubled
        tag = hub.tag if is_troubled and hub.tag else hashlib.sha256(content).hexdigest()
        size = hub.announced if is_troubled and hub.announced else len(content)
        return {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT, "Content-Length": str(size)}

    def _file(self, name: str) -> None:
        hub, content, headers = self.hub, self.hub.files[name], self._headers(name)
        if self.command == "HEAD":
            self._start(200, headers)
            return
        wanted = self.headers.get("range")
        hub.gets.append((name, wanted))
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        headers["Content-Length"] = str(len(content) - start)
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._start(206 if wanted else 200, headers)
        is_cut = name == hub.troubled and hub.sends is not None
        self.wfile.write(content[start : hub.sends] if is_cut else content[start:])
        if is_cut:
            hub.sends = None
            self.close_connection = True
            if hub.holds is not None:
                hub.is_held.set()
                hub.holds.wait(_HOLD_S)

    def _json(self, document: Any) -> None:
        body = json.dumps(document).encode()
        self._start(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
        self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self._start(status, {"X-Error-Code": code, "Content-Length": "0"})

    def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()
