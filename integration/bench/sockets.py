"""Connections of processes on this machine, as the kernel lists them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_ESTABLISHED = "01"


def connections(processes: Iterable[Path], port: int) -> list[int]:
    """How many TCP connections over IPv4 to a port each process has; those without one are left out.

    Args:
        processes: their folders in /proc. Ones that have ended have no connections.
        port: of the other side.
    """
    links = {f"socket:[{inode}]" for inode in _inodes(Path("/proc/net/tcp").read_text(), port)}
    counts = [sum(link in links for link in _links(process / "fd")) for process in processes]
    return [count for count in counts if count]


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
