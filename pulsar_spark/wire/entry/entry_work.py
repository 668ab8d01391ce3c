"""The work that the messages of one entry may make: an allowance for any, and more for its stored bytes.

Whoever may produce can store a few bytes that decompress to millions of messages, or of items in their
values. All clients compare a message or batch with ``maxMessageSize`` after it is compressed, so no honest
entry is known by its size alone. And it is not bytes that take time, but messages and items: items of lists
and maps, and fields by their names. One by one, an item takes about a microsecond, and a message several.

An entry of the usual 128 KiB can never have too many: an item has at least one byte. One that decompresses to
more may have as many items as the allowance, and more with its stored bytes; and a value in it as many as its
part of the bytes. So a verdict on a value depends on its own entry only.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pulsar_spark.arrow.arrays import Ints

Floats: TypeAlias = npt.NDArray[np.float64]

# Of any entry; and how many more for each byte that is stored of it.
ITEMS, ITEMS_PER_BYTE = 500_000, 8
MESSAGES, MESSAGES_PER_BYTE = 100_000, 0.5


def max_messages(stored: Ints) -> Ints:
    """How many messages entries of a number of stored bytes may hold, int64[n]."""
    return (MESSAGES + MESSAGES_PER_BYTE * stored).astype(np.int64)


def items_per_byte(stored: Ints, uncompressed: Ints) -> Floats | None:
    """How many items values may have for each of their bytes.

    Args:
        stored: int64[n], bytes of each entry as stored.
        uncompressed: int64[n], bytes of its payload once it is decompressed.

    Returns:
        float64[n], infinite where any number is accepted; None where all are.
    """
    accepted = ITEMS + ITEMS_PER_BYTE * stored
    is_checked = uncompressed > accepted
    if not is_checked.any():
        return None
    rates: Floats = np.where(is_checked, accepted / np.maximum(uncompressed, 1), np.inf)
    return rates
