"""Puts the model that the settings name where gateway and runtime find it, then ends.

The service `model` of compose.yaml runs it: that one has a way out of the network, the servers
have none. What is there already is only checked.
"""

import os
import sys
from pathlib import Path

from gateway.default_model import FetchError
from gateway.runtime_settings import find_model
from gateway.settings import Settings, SettingsError
from runtime.cache_folder import cache_folder
from runtime.errors import RuntimePackageError
from runtime.model_source import open_model

# Beside this file in an image, where deploy/build_libraries.py has put the native step.
LIBRARIES = Path(__file__).resolve().parent / "native"


def link_libraries(libraries: Path, cache: Path) -> None:
    """Has the cache folder lead to the image's libraries; one that has its own keeps them."""
    link = cache / "native"
    if libraries.is_dir() and not link.exists():
        cache.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)  # to where an older image had them
        link.symlink_to(libraries)


def main() -> int:
    """Exit code 0 once the model is there and can be read, 1 where not, 2 for bad settings."""
    try:
        link_libraries(LIBRARIES, cache_folder())
        path, _ = find_model(Settings.load(os.environ, {}))
        open_model(path)
    except SettingsError as error:
        return _complain(error, 2)
    except (FetchError, RuntimePackageError, OSError) as error:
        return _complain(error, 1)
    sys.stdout.write(f"radixgate: the model is at {path}\n")
    return 0


def _complain(error: object, code: int) -> int:
    sys.stderr.write(f"radixgate: {error}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
