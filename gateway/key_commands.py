"""The commands `radixgate key new` and `radixgate key hash`: what goes into a key file."""

import argparse
import getpass
import secrets
import sys

from gateway.accounts import digest_of

PREFIX = "rg-"
_NUM_RANDOM_BYTES = 32
# Below this a key is likely to be a word that somebody chose, and its hash tells it.
_MIN_CHARACTERS = 32


def run_key_command(options: argparse.Namespace) -> int:
    """Returns the exit code."""
    return _new() if options.key_command == "new" else _hash()


def hash_line(key: str) -> str:
    """The field of the key file."""
    return f"hash: sha256:{digest_of(key).hex()}"


def _new() -> int:
    key = PREFIX + secrets.token_urlsafe(_NUM_RANDOM_BYTES)
    sys.stdout.write(f"{key}\n{hash_line(key)}\n")
    return 0


def _hash() -> int:
    """The key comes over stdin: the arguments of a command can be seen by others."""
    is_typed = sys.stdin.isatty()
    key = (getpass.getpass("key: ") if is_typed else sys.stdin.readline()).strip()
    if not key:
        sys.stderr.write("radixgate: expected a key on standard input\n")
        return 2
    if len(key) < _MIN_CHARACTERS:
        sys.stderr.write(
            f"radixgate: the key is shorter than {_MIN_CHARACTERS} characters; who reads the key "
            "file might guess it\n"
        )
    sys.stdout.write(hash_line(key) + "\n")
    return 0
