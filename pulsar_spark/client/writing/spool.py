"""FileSpool: rows that a replay holds back, in memory and, if they are many, in a temporary file."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from typing import IO

from pulsar_spark.protocol.batcher import Batch
from pulsar_spark.protocol.dedup_replay import Item
from pulsar_spark.wire.singles import EncodedSingle

# Bytes above which the items go into a file.
_IN_MEMORY = 256 * 1024


class FileSpool:
    """The spool of a :class:`~pulsar_spark.protocol.dedup_replay.DedupReplay`: first in, first out, once."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._count = 0

    def put(self, item: Item) -> None:
        """Append an item; its bytes are copied."""
        if self._file is None:
            self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - until it is taken
        plain: Item
        if isinstance(item, Batch):
            plain = item._replace(parts=(b"".join(item.parts),))
        else:
            plain = EncodedSingle(bytes(item.metadata), bytes(item.payload))
        pickle.dump(plain, self._file)
        self._count += 1

    def take(self) -> Iterator[Item]:
        """Give all items in their order, once; then the spool is closed."""
        if self._file is not None:
            self._file.seek(0)
        for _ in range(self._count):
            yield pickle.load(self._file)  # type: ignore[arg-type]  # there is one where there is an item
        self.close()

    def close(self) -> None:
        """Drop what was not taken, and the file."""
        if self._file is not None:
            self._file.close()
