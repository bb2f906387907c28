"""Fetches a model from the Hugging Face hub into the standard cache of huggingface_hub.

Only the files that are read are fetched; what is in the cache needs no network. Loaded only where
a hub id is given, as the library takes half a second to import. Called by locate_model.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
from huggingface_hub import HfApi, constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]
from huggingface_hub.utils.logging import set_verbosity

from runtime.download_progress import DownloadProgress
from runtime.errors import ModelError
from runtime.hub_cache import DamagedDownload, RepositoryCache
from runtime.hub_reference import HubReference

_TEXT_FILES = ("config.json", "tokenizer.json")
_OPTIONAL_FILES = ("generation_config.json", "tokenizer_config.json", "chat_template.jinja")
_INDEX, _WHOLE = "model.safetensors.index.json", "model.safetensors"
_DEFAULT_REVISION = "main"
_COMMIT = re.compile("[0-9a-f]{40}")
# What an index may name, and an entity tag, which is a file's name in the cache: never a path.
_SHARD = re.compile(r"[\w.+-]+\.safetensors", re.ASCII)
_ENTITY_TAG = re.compile(r"\w[\w.+:-]*", re.ASCII)
_TIMEOUT_S = 10.0


def fetch_model(reference: HubReference) -> Path:
    """The model's GGUF file, or the folder with its files, in the cache.

    Raises: ModelError, one line, where the model cannot be had.
    """
    set_verbosity(ERROR)  # what it warns of is in our own lines
    constants.HF_HUB_DISABLE_TELEMETRY = True
    with _as_model_errors(reference):
        repository = _Repository(reference)
        if reference.file is not None:
            return repository.required(reference.file)
        for name in _TEXT_FILES:
            repository.required(name)
        for name in _OPTIONAL_FILES:
            repository.optional(name)
        index = repository.optional(_INDEX)
        shards = [_WHOLE] if index is None else _shards(index)
        return [repository.required(name) for name in shards][0].parent


def fetch_config(reference: HubReference) -> Path:
    """The model's config.json alone, in the cache.

    Raises: ModelError, one line, where it cannot be had.
    """
    set_verbosity(ERROR)
    constants.HF_HUB_DISABLE_TELEMETRY = True
    with _as_model_errors(reference):
        return _Repository(reference).required("config.json")


def _shards(index: Path) -> list[str]:
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = sorted({str(name) for name in weight_map.values()})
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        names = []
    if not names or not all(map(_SHARD.fullmatch, names)):
        raise ModelError(f"{index}: does not say in which files the weights are")
    return names


class _Unreachable(Exception):
    """The hub does not answer, or shall not be asked."""


class _Repository:
    """One repository at one commit: in the cache, and on the hub while that can be reached."""

    def __init__(self, reference: HubReference) -> None:
        self._reference = reference
        self._cache = RepositoryCache(reference.repo)
        self._is_online = not constants.HF_HUB_OFFLINE
        self._commit = self._find_commit(reference.revision or _DEFAULT_REVISION)

    def required(self, name: str) -> Path:
        """The file. Raises: ModelError where there is none."""
        found = self.optional(name) or self._cache.find(self._commit, name)
        if isinstance(found, Path):
            return found
        if found:
            raise _Unreachable
        raise _error(self._reference, self._lacks(name))

    def optional(self, name: str) -> Path | None:
        """The file; None where the repository has none, or nobody can tell."""
        found = self._cache.find(self._commit, name)
        if isinstance(found, Path):
            return found
        if not found or not self._is_online:
            return None
        try:
            return self._fetch(name)
        except EntryNotFoundError:
            self._cache.keep_absence(self._commit, name)
        except _NO_ANSWER:
            self._is_online = False
        return None

    def _find_commit(self, revision: str) -> str:
        if _COMMIT.fullmatch(revision):
            return revision
        commit = self._ask_for_commit(revision) if self._is_online else None
        if commit is not None:
            self._cache.keep_commit(revision, commit)
            return commit
        known = self._cache.commit_of(revision)
        if known is None:
            raise _Unreachable
        return known

    def _ask_for_commit(self, revision: str) -> str | None:
        try:
            info = HfApi().model_info(self._reference.repo, revision=revision, timeout=_TIMEOUT_S)
        except _NO_ANSWER:
            self._is_online = False
            return None
        except HfHubHTTPError as error:
            if error.response.status_code < 500:
                raise
            self._is_online = False
            return None
        return info.sha

    def _announced(self, name: str) -> tuple[str, str, int]:
        """Where the hub has the file, its entity tag, its size."""
        url = hf_hub_url(self._reference.repo, name, revision=self._commit)
        metadata = get_hf_file_metadata(url, timeout=_TIMEOUT_S)
        if metadata.etag is None or metadata.size is None:
            raise _error(self._reference, f"the hub does not say how large {name} is")
        if _ENTITY_TAG.fullmatch(metadata.etag) is None:
            raise _error(self._reference, f"the hub's entity tag of {name} is no plain name")
        return metadata.location, metadata.etag, metadata.size

    def _fetch(self, name: str) -> Path:
        location, etag, size = self._announced(name)

        def fill(part: Path, num_there: int) -> None:
            with part.open("ab") as file:
                http_get(
                    location,
                    file,
                    resume_size=num_there,
                    headers=_headers_for(location),
                    expected_size=size,
                    displayed_filename=name,
                    # Has the part of tqdm's interface that is used.
                    tqdm_class=cast("Any", DownloadProgress),
                )

        try:
            return self._cache.add(self._commit, name, etag=etag, size=size, fill=fill)
        except DamagedDownload:
            raise _error(self._reference, f"{name} arrived damaged; start again") from None

    def _lacks(self, name: str) -> str:
        """What to say of a repository without this file."""
        files = HfApi().list_repo_files(self._reference.repo, revision=self._commit)
        quantized = [file for file in files if file.endswith(".gguf")]
        if quantized:
            example = f"{self._reference.repo}/{quantized[0]}"
            return f"has no {name}; it has GGUF files, of which one can be named: {example}"
        return f"has no {name}; only models with safetensors or GGUF files are supported"


def _headers_for(location: str) -> dict[str, str]:
    """The token is for the hub alone, not for the storage to which it sends us."""
    headers: dict[str, str] = build_hf_headers()
    if urlsplit(location).netloc != urlsplit(constants.ENDPOINT).netloc:
        headers.pop("authorization", None)
    return headers


_NO_ANSWER = (httpx2.TransportError, OfflineModeIsEnabled)


@contextmanager
def _as_model_errors(reference: HubReference) -> Iterator[None]:
    """What the library raises, as one line that says what to do."""
    hub = f"the hub at {constants.ENDPOINT}"
    try:
        yield
    except GatedRepoError:
        terms = f"{constants.ENDPOINT}/{reference.repo}"
        raise _error(reference, f"is gated: accept its terms at {terms}, set HF_TOKEN") from None
    except RepositoryNotFoundError:
        raise _error(
            reference,
            "is no file or folder here, and the hub has no such model"
            " (or a private one, for which HF_TOKEN must be set)",
        ) from None
    except RevisionNotFoundError:
        raise _error(reference, "the hub has this model, but not this revision") from None
    except (_Unreachable, *_NO_ANSWER):
        place = f"is not completely in the cache at {constants.HF_HUB_CACHE}"
        reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{hub} does not answer"
        raise _error(reference, f"{place}, and {reason}") from None
    except HfHubHTTPError as error:
        raise _error(reference, f"{hub} answered {error.response.status_code}") from None
    except OSError as error:
        reason = error.strerror or str(error).partition("\n")[0]
        raise _error(reference, f"the download failed ({reason}); start again") from None


def _error(reference: HubReference, message: str) -> ModelError:
    return ModelError(f"{reference}: {message}")
