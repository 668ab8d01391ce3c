"""DedupReplay: compares what a task sends in a micro-batch with what is stored of it.

A task that is run again finds out from the broker how many of its messages are stored already. They are left
out only if they are the same ones: each entry is marked with a digest of all messages up to its end, which
does not depend on where entries begin and end, and the mark of the last stored entry is compared when so many
messages have come again. Until then they are kept. Nothing is ever dropped on the word of a number alone.
"""

from __future__ import annotations

import hashlib
import pickle
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import chain
from typing import IO, TypeAlias

from pulsar_spark.errors import SendError
from pulsar_spark.protocol.batcher import Batch
from pulsar_spark.wire.batch_walk import find_fields
from pulsar_spark.wire.crc32c import crc32c
from pulsar_spark.wire.dedup_mark import DIGEST_SIZE, encode_dedup_mark
from pulsar_spark.wire.frames import Buffer
from pulsar_spark.wire.singles import EncodedSingle

Item: TypeAlias = "Batch | EncodedSingle"

# Sequence ids that each micro-batch has in a topic partition.
IDS_PER_BATCH = 1 << 32

_IN_MEMORY = 4 * 1024 * 1024

# Bytes: so many at the beginning of each so many are hashed.
_WINDOW, _STRIDE = 1 << 10, 1 << 16

_SIZES = struct.Struct(">III")
_SINGLE = 0xFFFFFFFF  # a batch's messages begin with a size below 2**31


class Verdict(Enum):
    """What is known of the messages that are stored already."""

    OPEN = auto()  # not all of them have come again yet
    SAME = auto()
    DIFFERENT = auto()


class DedupReplay:
    """Takes what is to be sent, and gives what is not known to be stored, marked.

    Args:
        stored: how many messages of this micro-batch are stored in this topic partition.
        digest: of them, as the mark of the last one's entry says; None where that could not be read.

    Attributes:
        verdict: changes from OPEN once. After DIFFERENT nothing is left out and nothing is marked; it is to
            be sent under another producer name.
        messages: that came, and count for sequence ids.
    """

    def __init__(self, stored: int, digest: bytes | None) -> None:
        self.messages = 0
        self.stored = stored
        self._expected = digest
        self._sent = _Digest()
        self._kept = _Spool()
        self.verdict = Verdict.OPEN
        if stored == 0:
            self.verdict = Verdict.SAME
        elif digest is None:
            self.verdict = Verdict.DIFFERENT

    def take(self, items: Sequence[Item]) -> Iterable[Item]:
        """Take what comes next; give what is to be sent now, under the name that ``verdict`` then says.

        Raises:
            SendError: more messages than there are sequence ids.
        """
        if self.verdict is Verdict.OPEN:
            return self._compare(items)
        if self.verdict is Verdict.SAME:
            return [self._marked(item) for item in items]
        return items

    def end(self) -> Iterable[Item]:
        """Nothing more comes; give what is still kept, because not all that is stored has come again."""
        if self.verdict is not Verdict.OPEN:
            return ()
        self.verdict = Verdict.DIFFERENT
        return self._kept.take()

    def close(self) -> None:
        """Drop what is kept."""
        self._kept.close()

    def _compare(self, items: Sequence[Item]) -> Iterable[Item]:
        for number, item in enumerate(items):
            left = self.stored - self.messages
            head, tail = _split(item, left)
            self._add(head)
            if self.messages == self.stored:
                return self._decide(item, tail, items[number + 1 :])
            self._kept.put(item)
        return ()

    def _decide(self, item: Item, tail: Item | None, rest: Sequence[Item]) -> Iterable[Item]:
        """All that is stored has come again, with the beginning of ``item``; ``tail`` is new."""
        if self._sent.digest() == self._expected:
            self.verdict = Verdict.SAME
            self.close()
            return [self._marked(one) for one in ([] if tail is None else [tail]) + list(rest)]
        self.verdict = Verdict.DIFFERENT
        return chain(self._kept.take(), [item], rest)

    def _marked(self, item: Item) -> Item:
        self._add(item)
        return item._replace(dedup_mark=encode_dedup_mark(self._sent.digest()))

    def _add(self, item: Item) -> None:
        if isinstance(item, Batch):
            for part in item.parts:
                self._sent.add(part)
            self.messages += item.messages
        else:
            self._sent.add(_SIZES.pack(_SINGLE, len(item.metadata), len(item.payload)))
            self._sent.add(item.metadata)
            self._sent.add(item.payload)
            self.messages += 1
        if self.messages > IDS_PER_BATCH:
            raise SendError(
                f"a task writes more than {IDS_PER_BATCH} messages of a micro-batch to one topic partition",
                advice="Make micro-batches smaller, or set delivery=at-least-once",
            )


class _Digest:
    """A digest of a stream of bytes, which does not depend on how it is cut.

    SHA-256 of everything would take a fifth of what sending takes. So it is taken of 1 KiB in 64, which tells
    another order of rows, and CRC-32C of everything, which takes next to nothing, tells single other rows.
    """

    def __init__(self) -> None:
        self._size = 0
        self._crc = 0
        self._sha = hashlib.sha256()

    def add(self, data: Buffer) -> None:
        self._crc = crc32c(data, self._crc)
        view, begin = memoryview(data), self._size
        self._size += len(view)
        for window in range(begin - begin % _STRIDE, self._size, _STRIDE):
            if window + _WINDOW > begin:
                self._sha.update(view[max(window - begin, 0) : window - begin + _WINDOW])

    def digest(self) -> bytes:
        """DIGEST_SIZE bytes."""
        return self._crc.to_bytes(4, "big") + self._sha.copy().digest()[: DIGEST_SIZE - 4]


def _split(item: Item, count: int) -> tuple[Item, Item | None]:
    """Cut behind the first ``count`` messages; the second part is None where nothing is left."""
    if not isinstance(item, Batch) or item.messages <= count:
        return item, None
    body = b"".join(item.parts)
    at = int(find_fields(body, item.messages).start[count])
    view = memoryview(body)
    return Batch((view[:at],), count, at), Batch((view[at:],), item.messages - count, len(body) - at)


class _Spool:
    """Items in order, in a temporary file where they are many."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._count = 0

    def put(self, item: Item) -> None:
        if self._file is None:
            self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - until it is taken
        plain: Item
        if isinstance(item, Batch):
            plain = item._replace(parts=(b"".join(item.parts),))
        else:
            plain = EncodedSingle(bytes(item.metadata), bytes(item.payload))  # type: ignore[arg-type]
        pickle.dump(plain, self._file)
        self._count += 1

    def take(self) -> Iterator[Item]:
        """Give all of them, once."""
        if self._file is not None:
            self._file.seek(0)
        for _ in range(self._count):
            yield pickle.load(self._file)  # type: ignore[arg-type]  # there is one where there is an item
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
