"""Where what can be computed again is kept between runs: built code, packed weights, tokenizers.

Used by the runtime and, for tokenizers, by the gateway. Nothing here is needed to work: a file
that is missing or damaged is made again.
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
