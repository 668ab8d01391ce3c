"""What belongs to a row that is compared, and is not in its bytes."""

import numpy as np

from pulsar_spark.protocol.stored_rows import extras_of

VERSIONS = np.array([-1, -1, 0, 3, -1])
TIMES = np.array([-1, 5, -1, 5, -1])


def test_it_does_not_depend_on_the_rows_beside_it():
    """Runs do not cut their rows into the same blocks."""
    whole = extras_of(VERSIONS, TIMES)
    assert whole == [extras_of(VERSIONS[row : row + 1], TIMES[row : row + 1])[0] for row in range(5)]
    assert len(set(whole)) == 4
    assert whole[0] == b""
