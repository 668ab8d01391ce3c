"""Limits of the messages in an entry, and of the items in their values, by the entry's bytes.

Any producer can store a few bytes that decompress to millions of messages, or of items in their values. Size
alone does not show an attack, because clients compare ``maxMessageSize`` with compressed bytes, and equal
rows compress to a few bytes, too. Time is spent on messages (several microseconds each) and on items (about
one microsecond each): items of lists and maps, and fields found by name.

So each stored byte allows a number of items, and each uncompressed byte a fraction, enough for honest values.
Further items count against the allowance of the task.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pulsar_spark.arrow.arrays import Ints

Floats: TypeAlias = npt.NDArray[np.float64]

# Items that each stored byte of an entry pays for, and each uncompressed byte.
ITEMS_PER_BYTE, ITEMS_PER_UNCOMPRESSED = 8, 1 / 32
# Maximum messages of any entry, and further messages for each stored byte.
MESSAGES, MESSAGES_PER_BYTE = 100_000, 0.5


def max_messages(stored: Ints) -> Ints:
    """Returns the maximum messages of entries with these numbers of stored bytes, int64[n]."""
    return (MESSAGES + MESSAGES_PER_BYTE * stored).astype(np.int64)


def items_per_byte(stored: Ints, uncompressed: Ints) -> Floats | None:
    """Returns the number of items that each byte of an entry pays for.

    Args:
        stored: stored bytes of each entry, int64[n].
        uncompressed: bytes of each decompressed payload, int64[n].

    Returns:
        float64[n], infinite for entries without a limit; None if no entry has one.
    """
    paid = ITEMS_PER_BYTE * stored
    is_checked = uncompressed > paid
    if not is_checked.any():
        return None
    own = paid / np.maximum(uncompressed, 1) + ITEMS_PER_UNCOMPRESSED
    rates: Floats = np.where(is_checked, own, np.inf)
    return rates
