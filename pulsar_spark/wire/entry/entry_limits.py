"""The work that the messages of an entry may make: an allowance, and more for its bytes.

Whoever may produce can store a few bytes that decompress to millions of messages, or of items in their
values. All clients compare a message or batch with ``maxMessageSize`` after it is compressed, so no honest
entry is known by its size alone: equal rows become a few bytes, too. And it is not bytes that take time, but
messages and items: items of lists and maps, and fields by their names. One by one, an item takes about a
microsecond, and a message several.

So stored bytes pay for items, and uncompressed ones for as many as it takes to read honest values of them.
What values of a task take beyond is taken from its allowance.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pulsar_spark.arrow.arrays import Ints

Floats: TypeAlias = npt.NDArray[np.float64]

# For each byte that is stored of an entry, and for each uncompressed one.
ITEMS_PER_BYTE, ITEMS_PER_UNCOMPRESSED = 8, 1 / 32
# Of any entry; and how many more for each byte that is stored of it.
MESSAGES, MESSAGES_PER_BYTE = 100_000, 0.5


def max_messages(stored: Ints) -> Ints:
    """How many messages entries of a number of stored bytes may hold, int64[n]."""
    return (MESSAGES + MESSAGES_PER_BYTE * stored).astype(np.int64)


def items_per_byte(stored: Ints, uncompressed: Ints) -> Floats | None:
    """How many items each byte of entries pays for.

    Args:
        stored: int64[n], bytes of each entry as stored.
        uncompressed: int64[n], bytes of its payload once it is decompressed.

    Returns:
        float64[n], infinite where any number is accepted; None where all are.
    """
    paid = ITEMS_PER_BYTE * stored
    is_checked = uncompressed > paid
    if not is_checked.any():
        return None
    own = paid / np.maximum(uncompressed, 1) + ITEMS_PER_UNCOMPRESSED
    rates: Floats = np.where(is_checked, own, np.inf)
    return rates
