"""StoredRows: compares the rows of a micro-batch with the rows that earlier runs of a task have stored.

Only the bytes of rows decide which rows are sent: neither sequence ids, nor the order of the rows, nor the
names of their writers.

    ==============================  =================================================
    row that this run has n times   decision
    ==============================  =================================================
    stored n times or more often    not sent
    stored less often               only the last copies are sent, as many as missing
    not stored                      sent n times
    ==============================  =================================================

Most runs have the same rows in the same order. So the stored rows of each topic partition are read along with
the rows of this run, and their bytes are compared in order, block by block. After the first difference, all
further stored rows are read, and their digests are compared, in any order and over all partitions.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pulsar_spark.arrow.arrays import Flags, Ints
from pulsar_spark.arrow.join import EncodedMessages

Words: TypeAlias = "npt.NDArray[np.uint64]"

_WORDS = 2  # words of 8 bytes in a row's digest


class Rows(NamedTuple):
    """n rows, encoded.

    Attributes:
        encoded: bytes of the rows.
        extras: schema version and delivery time of each row, encoded by ``extras_of``.
    """

    encoded: EncodedMessages
    extras: Sequence[bytes]


class StoredRows:
    """The stored rows of one topic. A row compared by its digest takes about 50 bytes of memory."""

    def __init__(self) -> None:
        self._sequences: dict[int, _Sequence] = {}
        self._rest = _Digests()
        self._found: Counter[int] = Counter()

    def add(self, partition: int, blocks: Iterator[Rows]) -> None:
        """Adds the stored rows of a topic partition, in their order, which are read on demand."""
        sequence = _Sequence(blocks)
        if not sequence.has_ended:
            self._sequences[partition] = sequence

    @property
    def has_more(self) -> bool:
        """Whether there may be stored rows that this run has not found yet."""
        return bool(self._sequences) or self._rest.has_more

    def take(self, rows: Rows, bounds: Sequence[int]) -> Flags:
        """Returns whether each of the next rows of this run is stored, bool[n].

        A stored row is found at most once. Partition i has the rows from ``bounds[i]`` up to
        ``bounds[i + 1]``.
        """
        found: Flags = np.zeros(len(rows.extras), np.bool_)
        for partition, (first, last) in enumerate(pairwise(bounds)):
            sequence = self._sequences.get(partition)
            if sequence is not None and first < last:
                count = sequence.match(rows, first, last)
                found[first : first + count] = True
                self._found[partition] += count
                if sequence.has_ended:
                    del self._sequences[partition]
        if not found.all():
            self.read_rest()
            found |= self._rest.take(rows, ~found)
        return found

    def found(self) -> Counter[int]:
        """Returns the number of stored rows that this run has found, by partition number."""
        return self._found + self._rest.found()

    def missed(self) -> int:
        """Reads all further stored rows; returns the number of stored rows that this run has not found."""
        self.read_rest()
        return self._rest.missed()

    def read_rest(self) -> None:
        """Reads all further stored rows; from now on, digests are compared."""
        for partition in list(self._sequences):
            for block in self._sequences[partition].rest():
                self._rest.add(partition, block)
            del self._sequences[partition]  # last, so that ``close`` stops it if reading fails

    def close(self) -> None:
        """Stops reading stored rows."""
        for sequence in self._sequences.values():
            sequence.close()
        self._sequences = {}


class _Sequence:
    """Stored rows of a topic partition, compared in their order."""

    def __init__(self, blocks: Iterator[Rows]) -> None:
        self._blocks = blocks
        self._block: Rows | None = None
        self._at = 0  # index of the block's first row that was not found
        self._advance()

    @property
    def has_ended(self) -> bool:
        """Whether all rows were found."""
        return self._block is None

    def match(self, rows: Rows, first: int, last: int) -> int:
        """Marks stored rows as found while they equal ``rows`` from ``first`` on; returns their number."""
        begin = first
        while self._block is not None and first < last:
            count = min(last - first, len(self._block.extras) - self._at)
            if not _are_equal(rows, first, self._block, self._at, count):
                break
            first, self._at = first + count, self._at + count
            self._advance()
        return first - begin

    def rest(self) -> Iterator[Rows]:
        """Yields the stored rows that ``match`` has not found, in blocks."""
        if self._block is not None:
            encoded, extras = self._block
            yield Rows(EncodedMessages(encoded.buffer, encoded.offsets[self._at :]), extras[self._at :])
            yield from self._blocks

    def close(self) -> None:
        """Stops reading stored rows."""
        close = getattr(self._blocks, "close", None)
        if close is not None:
            close()

    def _advance(self) -> None:
        while self._block is None or self._at == len(self._block.extras):
            self._block, self._at = next(self._blocks, None), 0
            if self._block is None:
                return


class _Digests:
    """Rows by their digests. All rows are added before the first is searched."""

    def __init__(self) -> None:
        self._added: list[tuple[Words, npt.NDArray[np.int32]]] = []
        # The added rows, sorted by their digests' first words, and then in the order of adding.
        self._digests: Words = np.zeros((0, _WORDS), np.uint64)
        self._partition = np.zeros(0, np.int32)
        self._is_found: Flags = np.zeros(0, np.bool_)
        # The distinct first words, and for each: index of its first row, number of rows, and of found rows.
        self._words: npt.NDArray[np.uint64]
        self._first: Ints
        self._count: Ints
        self._taken: Ints

    def add(self, partition: int, block: Rows) -> None:
        count = len(block.extras)
        self._added.append((_digests_of(block, np.arange(count)), np.full(count, partition, np.int32)))

    @property
    def has_more(self) -> bool:
        return bool(self._added) or not self._is_found.all()

    def take(self, rows: Rows, is_wanted: Flags) -> Flags:
        found: Flags = np.zeros(len(is_wanted), np.bool_)
        if not self.has_more:
            return found
        self._index()
        wanted = np.flatnonzero(is_wanted)
        digests = _digests_of(rows, wanted)
        order = np.argsort(digests[:, 0], kind="stable")
        words = digests[order, 0]
        number = np.arange(len(words)) - np.searchsorted(words, words)  # index among rows of one word
        at = np.searchsorted(self._words, words)
        inside = np.flatnonzero(at < len(self._words))
        at, order = at[inside], order[inside]
        number = number[inside] + self._taken[at]
        left = np.flatnonzero(number < self._count[at])
        at, order, row = at[left], order[left], self._first[at[left]] + number[left]
        # If two digests have the same first word, a stored row may not be found, and is then sent again.
        is_same = (self._digests[row] == digests[order]).all(axis=1)
        np.add.at(self._taken, at[is_same], 1)
        self._is_found[row[is_same]] = True
        found[wanted[order[is_same]]] = True
        return found

    def found(self) -> Counter[int]:
        return Counter(self._partition[self._is_found].tolist())

    def missed(self) -> int:
        self._index()
        return int(np.count_nonzero(~self._is_found))

    def _index(self) -> None:
        if not self._added:
            return
        assert not len(self._digests), "rows are added first"
        digests, partition = map(np.concatenate, zip(*self._added, strict=True))
        self._added = []
        order = np.argsort(digests[:, 0], kind="stable")
        self._digests, self._partition = digests[order], partition[order]
        self._is_found = np.zeros(len(order), np.bool_)
        self._words, self._first, self._count = np.unique(
            self._digests[:, 0], return_index=True, return_counts=True
        )
        self._taken = np.zeros(len(self._words), np.int64)


def extras_of(versions: Ints, deliver_at: Ints) -> list[bytes]:
    """Encodes schema version and delivery time, which a row's bytes do not have; b"" for rows with neither.

    Args:
        versions: number of the schema version of each row, int64[n]; -1 for none.
        deliver_at: delivery time of each row in ms since the epoch, int64[n]; -1 for none.
    """
    if (versions < 0).all() and (deliver_at < 0).all():
        return [b""] * len(versions)
    # Extras begin with 0xff, because no encoded row begins so. A row without version and time always
    # gets b"", because its digest must not depend on the other rows.
    return [
        b"" if version < 0 and at < 0 else b"\xff%d %d " % (version, at)
        for version, at in zip(versions.tolist(), deliver_at.tolist(), strict=True)
    ]


def first_words(rows: Rows) -> Words:
    """Returns the first 8 bytes of each row's digest as a number, uint64[n]."""
    words: Words = _digests_of(rows, np.arange(len(rows.extras)))[:, 0].copy()
    return words


def _digests_of(rows: Rows, wanted: Ints) -> Words:
    (encoded, extras), sha = rows, hashlib.sha256
    body = bytes(encoded.buffer)
    firsts, lasts = encoded.offsets[:-1][wanted].tolist(), encoded.offsets[1:][wanted].tolist()
    if any(extras):
        parts = zip(wanted.tolist(), firsts, lasts, strict=True)
        digests = [sha(extras[row] + body[first:last]).digest() for row, first, last in parts]
    else:
        digests = [sha(body[first:last]).digest() for first, last in zip(firsts, lasts, strict=True)]
    words: Words = np.frombuffer(b"".join(digests), np.uint64).reshape(len(digests), -1)
    own: Words = words[:, :_WORDS].copy()
    return own


def _are_equal(rows: Rows, first: int, others: Rows, other_first: int, count: int) -> bool:
    if rows.extras[first : first + count] != others.extras[other_first : other_first + count]:
        return False
    bounds = rows.encoded.offsets[first : first + count + 1]
    other_bounds = others.encoded.offsets[other_first : other_first + count + 1]
    if not np.array_equal(np.diff(bounds), np.diff(other_bounds)):
        return False
    body = memoryview(rows.encoded.buffer)[int(bounds[0]) : int(bounds[-1])]
    return body == memoryview(others.encoded.buffer)[int(other_bounds[0]) : int(other_bounds[-1])]
