"""Where what can be had again is kept between runs: built code, packed weights, tokenizers, the
default model.

Used by the runtime and, for tokenizers and the default model, by the gateway. A file that is
missing or damaged is made, or fetched, again.
"""

import os
from pathlib import Path

from runtime.errors import ConfigError


def cache_folder() -> Path:
    """radixgate's folder in the user's cache. It may not exist. Raises: ConfigError.

    As the XDG base directory specification says, a relative path in the variable is ignored.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():
        cache = _home() / ".cache"
    return cache / "radixgate"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise ConfigError("the user has no home folder: set HOME or XDG_CACHE_HOME") from None
