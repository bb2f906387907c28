"""One repository in the standard cache of huggingface_hub, written so that a download can go on
where it ended, also after a restart; the library itself would begin anew.

Layout, as the library reads it: `blobs/<etag>`, `snapshots/<commit>/<file>` linked to a blob,
`refs/<revision>` with a commit, `.no_exist/<commit>/<file>` for a file that is known to be absent.
Used by runtime/hub.py alone.
"""

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from huggingface_hub import constants, try_to_load_from_cache
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

# The entity tag of a large file is its SHA-256.
_SHA256 = re.compile("[0-9a-f]{64}")


class DamagedDownload(Exception):
    """What arrived is not what was announced."""


class RepositoryCache:
    """The cache's folder of one repository. Several processes may use it at once."""

    def __init__(self, repo: str) -> None:
        cache = Path(constants.HF_HUB_CACHE).expanduser()
        self._repo = repo
        self._folder = cache / repo_folder_name(repo_id=repo, repo_type="model")

    def commit_of(self, revision: str) -> str | None:
        """The commit that the revision named when it was last asked for."""
        ref = self._folder / "refs" / revision
        return ref.read_text().strip() if ref.is_file() else None

    def keep_commit(self, revision: str, commit: str) -> None:
        """Remembers what the revision names."""
        ref = self._folder / "refs" / revision
        if self.commit_of(revision) != commit:
            _write(ref, commit)

    def find(self, commit: str, name: str) -> Path | bool:
        """The file; or whether it may exist: False where it is known to be absent."""
        cached = try_to_load_from_cache(self._repo, name, revision=commit)
        if cached is None:
            return True
        return Path(cached) if isinstance(cached, str) else False

    def keep_absence(self, commit: str, name: str) -> None:
        """Remembers that the commit has no such file."""
        _write(self._folder / ".no_exist" / commit / name, "")

    def add(
        self, commit: str, name: str, *, etag: str, size: int, fill: Callable[[Path, int], None]
    ) -> Path:
        """The file, once `fill` has completed its part; it gets the part's path and its size.

        Raises: DamagedDownload for a whole of another size or hash; the part is then gone.
        """
        blob = self._folder / "blobs" / etag
        part = blob.with_name(f"{etag}.part")
        blob.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(blob.with_name(f"{etag}.lock")):
            if not blob.exists():
                _complete(part, size=size, fill=fill)
                if not _is_whole(part, etag=etag, size=size):
                    part.unlink()
                    raise DamagedDownload
                part.rename(blob)
        return self._link(blob, self._folder / "snapshots" / commit / name)

    def _link(self, blob: Path, place: Path) -> Path:
        place.parent.mkdir(parents=True, exist_ok=True)
        new = place.with_name(f"{place.name}.{os.getpid()}")
        new.symlink_to(os.path.relpath(blob, place.parent))
        new.rename(place)
        return place


def _complete(part: Path, *, size: int, fill: Callable[[Path, int], None]) -> None:
    num_there = part.stat().st_size if part.exists() else 0
    if num_there > size:
        part.unlink()
        num_there = 0
    if num_there < size or size == 0:
        fill(part, num_there)


def _is_whole(file: Path, *, etag: str, size: int) -> bool:
    if file.stat().st_size != size:
        return False
    if _SHA256.fullmatch(etag) is None:
        return True
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == etag


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(text)
    new.rename(path)
