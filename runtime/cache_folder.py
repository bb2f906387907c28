"""Where what can be computed again is kept between runs: built code, packed weights, tokenizers.

Used by the runtime and, for tokenizers, by the gateway. Nothing here is needed to work: a file
that is missing or damaged is made again.
"""

import os
from pathlib import Path


def cache_folder() -> Path:
    """radixgate's folder in the user's cache (XDG base directories). It may not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "radixgate"
