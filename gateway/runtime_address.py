"""What an address of a runtime may be, for the settings and `radixgate health`: one that ZeroMQ
takes at once or never gets an answer from is told before anything is started."""

import os
import re

# Of sockaddr_un's 108 bytes one is the terminating zero.
_MAX_PATH_BYTES = 107
_MAX_PORT = 65535
_TCP = re.compile(r"tcp://(?P<host>[A-Za-z0-9._*%-]+|\[[0-9A-Fa-f:.%a-z]+\]):(?P<port>[0-9]{1,5})")
EXPECTED = "expected tcp://HOST:PORT or ipc://PATH"


def check_address(address: str, *, is_to_listen: bool = False) -> str:
    """Returns it. Only who listens may be at every address (`*`). Raises: ValueError."""
    scheme, _, path = address.partition("://")
    if scheme == "ipc" and path:
        if len(os.fsencode(path)) > _MAX_PATH_BYTES:
            raise ValueError(f"the path of a socket has {_MAX_PATH_BYTES} bytes at most")
        return address
    match = _TCP.fullmatch(address)
    if match is None or not 0 < int(match["port"]) <= _MAX_PORT:
        raise ValueError(EXPECTED)
    if "*" in match["host"] and not (is_to_listen and match["host"] == "*"):
        raise ValueError(f"{EXPECTED}, with the name or address of one host")
    return address
