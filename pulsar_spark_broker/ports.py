"""Free TCP ports on the loopback interface, and who listens where."""

from __future__ import annotations

import contextlib
import ipaddress
import random
import socket
import struct
from pathlib import Path

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


# How Linux writes that a socket listens.
_LISTENING = "0A"


def listening_addresses(pid: int) -> list[str]:
    """The addresses at which a process takes TCP connections; Linux only.

    Raises:
        OSError: there is no such process, or it is somebody else's.
    """
    folder = Path("/proc") / str(pid)
    sockets = set()
    for each in (folder / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile: a listening socket stays open
            sockets.add(str(each.readlink()))
    found = []
    for name in ("tcp", "tcp6"):
        for line in (folder / "net" / name).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _LISTENING and f"socket:[{inode}]" in sockets:
                found.append(_address(local.partition(":")[0]))
    return found


def _address(text: str) -> str:
    """An IP address of words of four bytes each, which Linux writes as the processor holds them."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    address = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
