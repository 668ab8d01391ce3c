"""Free TCP ports on the loopback interface."""

from __future__ import annotations

import random
import socket

# Below the range from which systems number outgoing connections (32768 and up on Linux, 49152 and up
# on macOS): only another listener can take such a port between its choice and its use.
_FIRST, _LAST = 15000, 32000

# Not the shared generator: tests that seed it would all choose the same ports.
_random = random.SystemRandom()


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nothing listens.

    Raises:
        OSError: when 200 random choices were all taken.
    """
    for _ in range(200):
        port = _random.randint(_FIRST, _LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port found between {_FIRST} and {_LAST}")
