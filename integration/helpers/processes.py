"""Processes of this machine as /proc lists them: which there are, their memory and their connections."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_ESTABLISHED = "01"  # in /proc/net/tcp


def parents() -> dict[int, int]:
    """Returns the parent of each process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def below(ancestor: int, text: bytes) -> list[int]:
    """Returns the processes that descend from one and have a text in their command."""
    known = parents()

    def descends(process: int) -> bool:
        while process in known and process != ancestor:
            process = known[process]
        return process == ancestor

    return [each for each in known if each != ancestor and descends(each) and text in command(each)]


def command(process: int) -> bytes:
    """Returns the command line; empty if the process has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def memory_mib(process: int, field: str = "VmRSS") -> float:
    """Returns a size, MiB: the resident one, or VmHWM, the highest so far; 0 if the process has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
    return 0.0


def connections(port: int) -> int:
    """Returns the number of TCP connections over IPv4 of this process to a port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    links = {
        f"socket:[{row[9]}]"
        for row in rows
        if row[3] == _ESTABLISHED and int(row[2].rpartition(":")[2], 16) == port
    }
    count = 0
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            count += str(file.readlink()) in links
    return count
