"""Connections of processes on this machine, as the kernel lists them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_ESTABLISHED = "01"
_SAMPLED_EVERY = 0.25  # seconds


def connections(processes: Iterable[Path], port: int) -> list[int]:
    """How many TCP connections over IPv4 to a port each process has; those without one are left out.

    Args:
        processes: their folders in /proc. Ones that have ended have no connections.
        port: of the other side.
    """
    links = {f"socket:[{inode}]" for inode in _inodes(Path("/proc/net/tcp").read_text(), port)}
    counts = [sum(link in links for link in _links(process / "fd")) for process in processes]
    return [count for count in counts if count]


@contextmanager
def watched(processes: Callable[[], Iterable[Path]], port: int) -> Iterator[list[list[int]]]:
    """Give a list that gets the :func:`connections` again and again until the end of the block."""
    seen: list[list[int]] = []
    done = threading.Event()

    def look() -> None:
        while not done.wait(_SAMPLED_EVERY):
            seen.append(connections(processes(), port))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        done.set()
        looking.join()


def _inodes(table: str, port: int) -> set[str]:
    """The sockets of a table like /proc/net/tcp whose other side is at a port."""
    rows = [line.split() for line in table.splitlines()[1:]]
    return {row[9] for row in rows if row[3] == _ESTABLISHED and int(row[2].rpartition(":")[2], 16) == port}


def _links(folder: Path) -> Iterator[str]:
    try:
        files = list(folder.iterdir())
    except OSError:
        return  # the process has ended
    for file in files:
        with suppress(OSError):  # closed meanwhile
            yield str(file.readlink())
