"""Find the subscriptions that checkpoints of Structured Streaming name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def named_in(roots: list[Path]) -> dict[str, Path]:
    """The UUIDs of the subscriptions that checkpoints name, each with the checkpoint's folder.

    Every UUID in an offset counts. A wrong match only keeps a subscription, and no change in how Spark or
    this package writes offsets can make a used subscription look unused.

    Args:
        roots: checkpoints, or folders that contain checkpoints at any depth.

    Raises:
        OSError: a folder does not exist, contains no checkpoint (it may not be mounted), or something in it
            cannot be read, so that nothing is known.
    """
    found: dict[str, Path] = {}
    for root in roots:
        offsets = 0
        for checkpoint in _checkpoints(root):
            for file in sorted((checkpoint / "offsets").iterdir()):
                if file.name.isdecimal():  # there are also checksums and temporary files
                    offsets += 1
                    text = file.read_text(errors="replace")
                    found.update(dict.fromkeys(UUID.findall(text), checkpoint))
        if not offsets:
            raise FileNotFoundError(
                f"there is no checkpoint in {root} or below it. Check that the folder is mounted"
            )
    return found


def _checkpoints(root: Path) -> Iterator[Path]:
    """Yield the folders that contain a folder of offsets.

    Everything else in them is Spark's, and is not read.
    """
    seen: set[Path] = set()
    for folder, names, _ in os.walk(root, onerror=_fail, followlinks=True):
        real = Path(folder).resolve()
        if real in seen:  # a link to a parent folder
            names.clear()
            continue
        seen.add(real)
        if "offsets" in names:
            yield Path(folder)
            names[:] = [name for name in names if name not in ("offsets", "commits", "sources", "state")]


def _fail(error: OSError) -> None:
    if isinstance(error, FileNotFoundError):
        raise FileNotFoundError(
            f"there is no folder {error.filename}. Check its name, and that it is mounted. Without the "
            "checkpoints of all queries nothing is removed; leave out those that you have deleted"
        ) from None
    raise error
