"""Groups of messages that have one key: by partition, in the order in which keys come first, stable."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.protocol.key_groups import begin_keys, group_by_key
from pulsar_spark.wire.message_columns import MessageColumns

KEYS = st.none() | st.sampled_from([b"", b"a", b"b", b"\xff"]) | st.binary(max_size=2)
ROWS = st.lists(st.tuples(st.integers(0, 3), KEYS, KEYS), max_size=30)


def columns_of(rows, *, has_ordering_keys=True):
    return MessageColumns(
        value=pa.nulls(len(rows), pa.binary()),
        key=pa.array([key for _, key, _ in rows], pa.binary()),
        ordering_key=pa.array([key for *_, key in rows], pa.binary()) if has_ordering_keys else None,
    )


def sticky(row, *, has_ordering_keys=True):
    """The bytes by which a broker chooses a consumer."""
    _, key, ordering_key = row
    return ordering_key if has_ordering_keys and ordering_key is not None else key


@given(ROWS, st.booleans())
def test_groups_are_those_of_a_dictionary(rows, has_ordering_keys):
    expected = [{} for _ in range(4)]
    for number, row in enumerate(rows):
        key = sticky(row, has_ordering_keys=has_ordering_keys)
        expected[row[0]].setdefault(key, []).append(number)
    partitions = np.array([partition for partition, *_ in rows], np.int32)
    order, bounds, starts = group_by_key(columns_of(rows, has_ordering_keys=has_ordering_keys), partitions, 4)
    found = []
    for (first, last), begins in zip(pairwise(bounds), starts, strict=True):
        own = order[first:last].tolist()
        edges = [*begins.tolist(), len(own)]
        found.append([own[begin:end] for begin, end in pairwise(edges)])
    in_order = list(dict.fromkeys(sticky(row, has_ordering_keys=has_ordering_keys) for row in rows))
    assert found == [[groups[key] for key in in_order if key in groups] for groups in expected]


def test_more_keys_than_sixteen_bits_number():
    count = 70_000
    rows = [(number % 2, b"%d" % number, None) for number in range(count)]
    partitions = np.array([partition for partition, *_ in rows], np.int32)
    order, bounds, starts = group_by_key(columns_of(rows), partitions, 2)
    assert order.tolist() == [*range(0, count, 2), *range(1, count, 2)]
    assert bounds.tolist() == [0, count // 2, count]
    assert [begins.tolist() for begins in starts] == [list(range(count // 2))] * 2


@given(ROWS)
def test_what_keeps_its_order_is_cut_where_the_key_changes(rows):
    rows.sort(key=lambda row: row[0])
    bounds = np.searchsorted([partition for partition, *_ in rows], np.arange(5))
    found = begin_keys(columns_of(rows), bounds)
    assert found.tolist() == [
        number == 0 or row[0] != rows[number - 1][0] or sticky(row) != sticky(rows[number - 1])
        for number, row in enumerate(rows)
    ]
