"""Chooses the partition of a message. Keys are routed as in the Java client, because consumers rely on it.

Keys are hashed as sent, which may be base64 text. All keys are hashed at once, in numpy's wrapping 32-bit
arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints, bytes_and_offsets, parts_by_size
from pulsar_spark.errors import OptionError
from pulsar_spark.protocol.segments import Segment
from pulsar_spark.wire.columns.message_columns import MessageColumns

Words: TypeAlias = npt.NDArray[np.uint32]
Partitions: TypeAlias = npt.NDArray[np.int32]

MessageRouter: TypeAlias = Callable[[pa.BinaryArray, int], Any]
"""``messageRouter``: keys of n rows (null: none) and the number of partitions -> n partition numbers.

The result is a list, a numpy or an Arrow array of integers. Equal keys must always get equal numbers, or the
replay of a micro-batch is not equal.
"""

_31 = 31
_INVERSE_OF_31 = pow(31, -1, 2**32)
_MURMUR_ADDED = 0xE6546B64

_HASHED_AT_ONCE = 1 << 16  # code units in a block of texts; a longer text is its own block

_ROUNDS = 64  # 4-byte words of each text that are hashed for all texts at once; most keys are shorter


class HashingScheme(Enum):
    """The Java client's ``hashingScheme``."""

    JAVA_STRING = "JavaStringHash"
    MURMUR3_32 = "Murmur3_32Hash"


class RoutingMode(Enum):
    """The Java client's ``messageRoutingMode``; applies to rows without a key, CUSTOM to all rows."""

    SINGLE = "SinglePartition"
    ROUND_ROBIN = "RoundRobinPartition"
    CUSTOM = "CustomPartition"


class TaskPlace(NamedTuple):
    """The number of a micro-batch and of a task in it; a repeated run of the task has the same numbers."""

    batch: int
    task: int

    def first_partition(self, partitions: int, mode: RoutingMode) -> int:
        """Returns the partition of the task's first row without a key.

        Tasks of a micro-batch begin at consecutive partitions, and so do the micro-batches of a task. So rows
        are spread evenly even if each task has few rows. After each round of all partitions one partition is
        skipped, because otherwise a query with rows in every second micro-batch would use half of the
        partitions. With SINGLE the result does not depend on the micro-batch.
        """
        match mode:
            case RoutingMode.SINGLE:
                return self.task % partitions
            case RoutingMode.ROUND_ROBIN | RoutingMode.CUSTOM:
                return (self.batch + self.batch // partitions + self.task) % partitions


class Router:
    """Chooses the partitions of one writer's rows, in their order.

    A row that names its partition is sent there, a row with a key by the key's hash. Other rows fill a block
    of one partition, then a block of the next; a block also ends after ``switch_after`` seconds.

    Args:
        mode: routing of rows without a key; SINGLE: all to ``start``.
        custom: the user's router, which replaces hash and blocks; only with CUSTOM.
        start: partition of the first row without a key.
        block: number of rows without a key in a block.
        switch_after: maximum seconds of a block; None: no limit, so a replay uses the same partitions.
    """

    def __init__(
        self,
        mode: RoutingMode,
        scheme: HashingScheme,
        custom: MessageRouter | None,
        *,
        start: int,
        block: int,
        switch_after: float | None,
    ) -> None:
        self._mode = mode
        self._scheme = scheme
        self._custom = custom
        self._start = start
        self._block = block
        self._switch_after = switch_after
        self._taken = 0  # number of routed rows without a key; a block that time has ended counts as full
        self._switched_at = 0.0

    def route(
        self, columns: MessageColumns, texts: pa.BinaryArray, partitions: int, now: float
    ) -> Partitions:
        """Returns the partition of each row, int32[n].

        Args:
            texts: keys of the rows as they are sent, binary[n]; null for no key.

        Raises:
            OptionError: a row or the user's router names a partition that the topic does not have, or the
                router does not return one number per row.
        """
        if columns.partition is None or columns.partition.null_count == len(columns):
            return self._chosen(columns.key, texts, partitions, now)
        routed: Partitions = columns.partition.fill_null(-1).to_numpy().copy()
        open_ = columns.partition.is_null().to_numpy(zero_copy_only=False)
        _check(routed[~open_], partitions, "a row's __partition", "; null lets the sink choose")
        if open_.any():
            rows = pa.array(open_)
            routed[open_] = self._chosen(columns.key.filter(rows), texts.filter(rows), partitions, now)
        return routed

    def _chosen(self, keys: pa.BinaryArray, texts: pa.BinaryArray, partitions: int, now: float) -> Partitions:
        if self._custom is not None:
            chosen = np.asarray(self._custom(keys, partitions))
            if chosen.shape != (len(keys),) or not (np.issubdtype(chosen.dtype, np.integer) or not len(keys)):
                raise OptionError(
                    f"messageRouter returned {chosen.dtype}{list(chosen.shape)} for {len(keys)} keys",
                    advice="Return one partition number for each key",
                )
            _check(chosen, partitions, "a partition number of messageRouter")
            return chosen.astype(np.int32)
        if partitions == 1:
            return np.zeros(len(keys), np.int32)
        chosen = partitions_for_keys(texts, partitions, self._scheme)
        without_key = np.flatnonzero(chosen < 0)
        if len(without_key):
            chosen[without_key] = self._in_turn(len(without_key), partitions, now)
        return chosen

    def _in_turn(self, count: int, partitions: int, now: float) -> Partitions | int:
        match self._mode:
            case RoutingMode.SINGLE:
                return self._start % partitions  # a scalable topic may have fewer segments than before
            case RoutingMode.ROUND_ROBIN | RoutingMode.CUSTOM:
                return self._next_turns(count, partitions, now)

    def _next_turns(self, count: int, partitions: int, now: float) -> Partitions:
        into_block = self._taken % self._block
        if self._switch_after is not None and into_block and now - self._switched_at >= self._switch_after:
            self._taken += self._block - into_block
        first, self._taken = self._taken, self._taken + count
        if first % self._block == 0 or first // self._block != self._taken // self._block:
            self._switched_at = now
        turns = self._start + np.arange(first, self._taken) // self._block
        numbers: Partitions = (turns % partitions).astype(np.int32)
        return numbers


class SegmentRouter(Router):
    """Router of a scalable topic, whose partitions are its active segments.

    A row with a key is sent to the segment whose range has the key's hash, as in Pulsar's clients of version
    5. Rows without a key are routed by the mode, SINGLE or ROUND_ROBIN.
    """

    def follow(self, active: Mapping[int, Segment]) -> None:
        """Routes to these segments from now on; keys of ``active``: numbers that are returned for rows."""
        ordered = sorted(active, key=lambda number: active[number].first_hash)
        self._numbers = np.array(ordered, np.int32)
        widths = [active[number].last_hash - active[number].first_hash + 1 for number in ordered]
        self._number_of = np.repeat(self._numbers, widths)  # the segment's number for each 16-bit hash

    def route_hashes(self, hashes: Words, keys: pa.BinaryArray, now: float) -> Partitions:
        """Returns the number of each row's segment, int32[n]; ``hashes``: :func:`raw_hashes` of the keys."""
        turns: Partitions | int = 0
        if keys.null_count:
            turns = self._numbers[self._in_turn(keys.null_count, len(self._numbers), now)]
        if keys.null_count == len(keys):
            return np.full(len(keys), turns, np.int32)
        numbers: Partitions = self._number_of[hashes >> np.uint32(16)]
        if keys.null_count:
            numbers[keys.is_null().to_numpy(zero_copy_only=False)] = turns
        return numbers


def _check(numbers: npt.NDArray[Any], partitions: int, whose: str, more: str = "") -> None:
    wrong = numbers[(numbers < 0) | (numbers >= partitions)]
    if len(wrong):
        raise OptionError(
            f"{whose} is {wrong[0]}, but the topic has {partitions} partitions",
            advice=f"Partitions are numbered from 0{more}",
        )


def partitions_for_keys(
    texts: pa.BinaryArray, partitions: int, scheme: HashingScheme = HashingScheme.JAVA_STRING
) -> Partitions:
    """Returns the partition of each key, int32[n] from 0 to ``partitions - 1``; -1 for a null key.

    Keys are given as sent: UTF-8 text.
    """
    chosen = np.full(len(texts), -1, np.int32)
    hashed = hash_keys(texts.drop_null(), scheme)
    has = texts.is_valid().to_numpy(zero_copy_only=False) if texts.null_count else slice(None)
    chosen[has] = (hashed % np.uint32(partitions)).astype(np.int32)
    return chosen


def hash_keys(texts: pa.BinaryArray, scheme: HashingScheme) -> Words:
    """Hashes UTF-8 texts without nulls to uint32[n] below 2**31, as Java's ``makeHash`` does."""
    count = len(texts)
    if count == 0:
        return np.zeros(0, np.uint32)
    data, offsets = bytes_and_offsets(texts)
    hashed = _HASHES[scheme](data, offsets)
    hashed &= np.uint32(0x7FFFFFFF)
    return hashed


def raw_hashes(keys: pa.BinaryArray) -> Words:
    """Hashes keys by MurmurHash3 to all 32 bits of uint32[n]; 0 for null.

    Segments of scalable topics have ranges of the upper 16 bits, and their buckets of the lower 16 bits.
    """
    if len(keys) and not keys.null_count:
        return _murmur3(*bytes_and_offsets(keys))
    hashed = np.zeros(len(keys), np.uint32)
    if len(keys) > keys.null_count:
        has = keys.is_valid().to_numpy(zero_copy_only=False)
        hashed[has] = _murmur3(*bytes_and_offsets(keys.drop_null()))
    return hashed


def bucket_hashes(hashes: Words, ordering_keys: pa.BinaryArray | None) -> Words:
    """Returns each row's 16-bit hash for its bucket in a segment: of the ordering key, or else of the key."""
    if ordering_keys is not None:
        has = ordering_keys.is_valid().to_numpy(zero_copy_only=False)
        hashes = np.where(has, raw_hashes(ordering_keys), hashes)
    lower: Words = hashes & np.uint32(0xFFFF)
    return lower


def _java_hash(data: npt.NDArray[np.uint8], offsets: Ints) -> Words:
    """Java's ``String.hashCode``: the sum of unit[i] * 31**(length - 1 - i) over UTF-16 code units.

    31 has an inverse modulo 2**32. Let sum[k] be the sum of unit[i] * 31**-i for i < k, over a block of
    texts. Then the text unit[s:e] has the hash (sum[e] - sum[s]) * 31**(e - 1).
    """
    units: npt.NDArray[np.uint8 | np.uint16] = data
    if data.max(initial=0) > 0x7F:
        units = np.frombuffer(data.tobytes().decode("utf-8").encode("utf-16-le"), "<u2")
        # A character's code units are counted at its first byte.
        units_to = np.zeros(len(data) + 1, np.int64)
        np.cumsum((data < 0x80).astype(np.int8) + (data >= 0xC0) + (data >= 0xF0), out=units_to[1:])
        offsets = units_to[offsets]
    hashed = np.empty(len(offsets) - 1, np.uint32)
    for first, last in parts_by_size(offsets, _HASHED_AT_ONCE):
        begin = offsets[first]
        block, bounds = units[begin : offsets[last]], offsets[first : last + 1] - begin
        sums = np.zeros(len(block) + 1, np.uint32)
        np.cumsum(block * _powers(_INVERSE_OF_31, len(block)), out=sums[1:], dtype=np.uint32)
        start, end = bounds[:-1], bounds[1:]
        scale = _powers(_31, len(sums))[end] * np.uint32(_INVERSE_OF_31)
        hashed[first:last] = (sums[end] - sums[start]) * scale
    return hashed


def _powers(base: int, count: int) -> Words:
    """Returns powers 0 to ``count - 1`` of ``base``, modulo 2**32."""
    kept = _kept_powers(base)
    return kept[:count] if count <= len(kept) else _new_powers(base, count)


@lru_cache(maxsize=2)
def _kept_powers(base: int) -> Words:
    """Returns the powers for a block; cached, because computing them takes longer than hashing."""
    return _new_powers(base, _HASHED_AT_ONCE + 1)


def _new_powers(base: int, count: int) -> Words:
    powers = np.full(count, base, np.uint32)
    powers[:1] = 1
    return np.cumprod(powers, dtype=np.uint32)


def _murmur3(data: npt.NDArray[np.uint8], offsets: Ints) -> Words:
    """MurmurHash3 x86 32-bit, seed 0: the first words of all texts at once, later words text by text."""
    padded = np.append(data, np.zeros(4, np.uint8))
    words = np.ndarray((len(data) + 1,), "<u4", padded, 0, (1,))  # the 4-byte word at each byte's offset
    start = offsets[:-1]
    sizes = np.diff(offsets)
    hashed = np.zeros(len(start), np.uint32)
    whole = sizes & ~3
    in_rounds = 4 * _ROUNDS
    for at in range(0, min(int(whole.max()), in_rounds), 4):
        rows = np.flatnonzero(whole > at)
        mixed = hashed[rows] ^ _scrambled(words[start[rows] + at])
        hashed[rows] = _rotated(mixed, 13) * np.uint32(5) + np.uint32(_MURMUR_ADDED)
    for row in np.flatnonzero(whole > in_rounds).tolist():
        rest = words[start[row] + in_rounds : start[row] + whole[row] : 4]
        hashed[row] = _continued(int(hashed[row]), rest)
    left = (np.uint32(1) << (8 * (sizes - whole)).astype(np.uint32)) - np.uint32(1)
    hashed ^= _scrambled(words[start + whole] & left)
    hashed ^= sizes.astype(np.uint32)
    hashed ^= hashed >> np.uint32(16)
    hashed *= np.uint32(0x85EBCA6B)
    hashed ^= hashed >> np.uint32(13)
    hashed *= np.uint32(0xC2B2AE35)
    hashed ^= hashed >> np.uint32(16)
    return hashed


def _continued(hashed: int, words: Words) -> int:
    for word in _scrambled(words).tolist():
        hashed ^= word
        hashed = ((hashed << 13 | hashed >> 19) * 5 + _MURMUR_ADDED) & 0xFFFFFFFF
    return hashed


def _scrambled(words: Words) -> Words:
    scrambled: Words = _rotated(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return scrambled


def _rotated(words: Words, left: int) -> Words:
    rotated: Words = words << np.uint32(left) | words >> np.uint32(32 - left)
    return rotated


_HASHES = {HashingScheme.JAVA_STRING: _java_hash, HashingScheme.MURMUR3_32: _murmur3}
