"""Where the rows of an Arrow array begin."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def offsets_of(values: pa.Array) -> npt.NDArray[np.int32]:
    """Where each of n rows begins in the data buffer, or among the items, and where the last one ends.

    Args:
        values: n rows, at least one, of binary, string, list or map; may be a slice.

    Returns:
        int32[n + 1], a view.
    """
    return np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)
