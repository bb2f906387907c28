"""Key files for tests: from keys in plain text to the YAML that a server reads."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SECRET = b"a secret of the server"


def hash_of(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def key_file(
    folder: Path,
    keys: Mapping[str, Mapping[str, Any]],
    *,
    name: str = "keys.yaml",
    defaults: Mapping[str, Any] | None = None,
) -> Path:
    """Writes the file; `keys` has the fields of each key but for its hash."""
    entries = [{"hash": hash_of(key), **fields} for key, fields in keys.items()]
    path = folder / name
    # JSON is YAML.
    path.write_text(json.dumps({"defaults": dict(defaults or {}), "keys": entries}))
    return path
