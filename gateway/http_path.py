"""The path a request asked for, without the prefix under which a proxy publishes the server."""

from starlette.types import Scope


def route_path(scope: Scope) -> str:
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(root + "/")):
        return path[len(root) :]
    return path
