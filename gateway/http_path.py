"""The path a request asked for, without the prefix under which a proxy publishes the server; the
methods of what can only be read."""

from starlette.types import Scope

# Whatever can be read can be asked after without its body.
READ_METHODS = ["GET", "HEAD"]


def route_path(scope: Scope) -> str:
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(root + "/")):
        return path[len(root) :]
    return path
