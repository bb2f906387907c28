"""The server secret that lies in the cache folder, for who sets none: with another secret at each
start no prefix that the folder holds would ever be found. Called once, at start.
"""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gateway.settings import Settings, SettingsError, variable_of

SECRET_FILE = "server_secret"
_SECRET = re.compile(r"[0-9a-f]{64}")
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def with_kept_secret(settings: Settings) -> Settings:
    """The settings with the secret of their cache folder, which is made if need be; a secret that
    is set stays. Servers that share prefixes through Redis have to be given theirs.

    Raises: SettingsError where the folder cannot be made, written or read.
    """
    if settings.cache_dir is None:
        return settings
    folder = Path(settings.cache_dir)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_can_write(folder)
        if "server_secret" in settings.model_fields_set or settings.cache_redis_url is not None:
            return settings
        secret = _kept_secret(folder / SECRET_FILE)
    except OSError as error:
        raise _refusal(settings, error.strerror or str(error)) from None
    if secret is None:
        raise _refusal(settings, f"{SECRET_FILE} in it holds no secret; remove that file")
    return settings.model_copy(update={"server_secret": secret})


def _kept_secret(path: Path) -> str | None:
    """None where the file holds something else. Servers that start at once end with the same."""
    if not path.exists():
        with _draft(path.parent) as (draft, descriptor), suppress(FileExistsError):
            os.write(descriptor, secrets.token_hex(32).encode())
            os.fsync(descriptor)
            os.link(draft, path)
    text = path.read_text(encoding="latin-1").strip()
    return text if _SECRET.fullmatch(text) else None


def _check_can_write(folder: Path) -> None:
    with _draft(folder):
        pass


@contextmanager
def _draft(folder: Path) -> Iterator[tuple[Path, int]]:
    """A new file for this user alone, open for writing, which is removed in the end."""
    path = folder / f".{SECRET_FILE}.{secrets.token_hex(8)}"
    descriptor = os.open(path, _CREATE, 0o600)
    try:
        yield path, descriptor
    finally:
        os.close(descriptor)
        path.unlink()


def _refusal(settings: Settings, problem: str) -> SettingsError:
    return SettingsError(
        f"{variable_of('cache_dir')}={settings.cache_dir!r}: expected a folder that can be"
        f" written ({problem})"
    )
