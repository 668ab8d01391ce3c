"""Which subscriptions Structured Streaming's checkpoints name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def named_in(roots: list[Path]) -> dict[str, Path]:
    """The UUIDs of the subscriptions that are named in checkpoints, each with the checkpoint's folder.

    Every UUID in an offset counts: what is found too much is only kept, and no change of the form in which
    Spark or this package writes offsets makes a subscription look forsaken.

    Args:
        roots: checkpoints, or folders with checkpoints anywhere below them.

    Raises:
        OSError: a folder does not exist, holds no checkpoint (it may not be mounted), or something in it
            cannot be read: then nothing is known.
    """
    found: dict[str, Path] = {}
    for root in roots:
        offsets = 0
        for checkpoint in _checkpoints(root):
            for file in sorted((checkpoint / "offsets").iterdir()):
                if file.name.isdecimal():  # besides them there are checksums and temporary files
                    offsets += 1
                    text = file.read_text(errors="replace")
                    found.update(dict.fromkeys(UUID.findall(text), checkpoint))
        if not offsets:
            raise FileNotFoundError(
                f"there is no checkpoint in {root} or below it. Check that the folder is mounted"
            )
    return found


def _checkpoints(root: Path) -> Iterator[Path]:
    """The folders that hold a folder of offsets; what else is in them is Spark's and is not looked at."""
    seen: set[Path] = set()
    for folder, names, _ in os.walk(root, onerror=_fail, followlinks=True):
        real = Path(folder).resolve()
        if real in seen:  # a link to a folder above
            names.clear()
            continue
        seen.add(real)
        if "offsets" in names:
            yield Path(folder)
            names[:] = [name for name in names if name not in ("offsets", "commits", "sources", "state")]


def _fail(error: OSError) -> None:
    raise error
