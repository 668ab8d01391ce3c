"""Router: which partition each row of a writer goes to."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.errors import OptionError
from pulsar_spark.protocol.writing.routing import (
    HashingScheme,
    Router,
    RoutingMode,
    TaskPlace,
    partitions_for_keys,
)
from pulsar_spark.wire.columns.message_columns import MessageColumns, encode_keys
from tests.loops import for_each


def router(mode=RoutingMode.ROUND_ROBIN, custom=None, *, start=0, block=3, switch_after=None, **options):
    scheme = options.get("scheme", HashingScheme.JAVA_STRING)
    return Router(mode, scheme, custom, start=start, block=block, switch_after=switch_after)


def routed(one, columns, partitions, now):
    return one.route(columns, encode_keys(columns.key).texts, partitions, now)


def rows(keys, partition=None):
    return MessageColumns(
        value=pa.nulls(len(keys), pa.binary()),
        key=pa.array(keys, pa.binary()),
        partition=None if partition is None else pa.array(partition, pa.int32()),
    )


def keyless(count):
    return rows([None] * count)


def test_rows_without_a_key_fill_blocks_in_turn():
    one = router(start=1)
    assert routed(one, keyless(4), 3, 0).tolist() == [1, 1, 1, 2]
    assert routed(one, keyless(0), 3, 0).tolist() == []
    assert routed(one, keyless(6), 3, 1e9).tolist() == [2, 2, 0, 0, 0, 1]


def test_where_rows_go_does_not_depend_on_how_they_come():
    together = routed(router(block=7), keyless(100), 4, 0).tolist()
    one = router(block=7)
    assert [routed(one, keyless(1), 4, now)[0] for now in range(100)] == together


def test_a_block_that_takes_long_is_left():
    one = router(switch_after=10)
    assert routed(one, keyless(1), 3, 100).tolist() == [0]
    assert routed(one, keyless(1), 3, 109).tolist() == [0]
    assert routed(one, keyless(1), 3, 110).tolist() == [1]
    assert routed(one, keyless(3), 3, 119).tolist() == [1, 1, 2]
    assert routed(one, keyless(1), 3, 128).tolist() == [2]
    assert routed(one, rows([None, None], [2, None]), 3, 129).tolist() == [2, 0]


def test_a_block_that_is_full_is_left_once():
    one = router(switch_after=10)
    assert routed(one, keyless(3), 3, 0).tolist() == [0, 0, 0]
    assert routed(one, keyless(1), 3, 50).tolist() == [1]
    assert routed(one, keyless(1), 3, 59).tolist() == [1]


def test_a_single_partition_is_kept_when_others_are_added():
    one = router(RoutingMode.SINGLE, start=1)
    assert routed(one, keyless(5), 2, 0).tolist() == [1] * 5
    assert routed(one, keyless(5), 4, 0).tolist() == [1] * 5


@pytest.mark.parametrize("mode", [RoutingMode.SINGLE, RoutingMode.ROUND_ROBIN])
@pytest.mark.parametrize("scheme", HashingScheme)
def test_keys_go_by_their_hash_and_take_no_turn(mode, scheme):
    keys = [b"a", None, b"b", b"\xff", None]
    expected = partitions_for_keys(encode_keys(pa.array(keys, pa.binary())).texts, 5, scheme)
    expected[[1, 4]] = 4
    one = router(mode, start=4, block=2, scheme=scheme)
    assert routed(one, rows(keys), 5, 0).tolist() == expected.tolist()


def test_keys_are_hashed_as_they_are_sent():
    columns = rows([b"a", b"b", b"c", None])
    texts = encode_keys(columns.key, as_bytes=True).texts
    expected = partitions_for_keys(texts[:3], 97).tolist()
    assert router(start=4).route(columns, texts, 97, 0).tolist() == [*expected, 4]
    assert partitions_for_keys(columns.key[:3], 97).tolist() != expected


@for_each("partitions", [1, 2, 3, 7, 8, 60])
@for_each("tasks", [1, 2, 5, 8])
@for_each("each", [1, 2, 3])
def test_micro_batches_with_few_rows_reach_all_partitions_alike(partitions, tasks, each):
    """Also where only each second or third micro-batch has any, as with a watermark."""
    starts = Counter(
        TaskPlace(batch, task).first_partition(partitions, RoutingMode.ROUND_ROBIN)
        for batch in range(0, each * partitions * partitions, each)
        for task in range(tasks)
    )
    assert starts == dict.fromkeys(range(partitions), partitions * tasks)


def test_tasks_of_a_micro_batch_and_micro_batches_of_a_task_follow_each_other():
    def first(batch, task):
        return TaskPlace(batch, task).first_partition(8, RoutingMode.ROUND_ROBIN)

    assert [first(0, task) for task in range(9)] == [0, 1, 2, 3, 4, 5, 6, 7, 0]
    assert [first(batch, 2) for batch in range(6, 11)] == [0, 1, 3, 4, 5]


def test_a_single_partition_is_the_same_for_all_micro_batches():
    found = [TaskPlace(batch, 5).first_partition(3, RoutingMode.SINGLE) for batch in range(9)]
    assert found == [2] * 9


def test_the_rows_partition_wins_and_takes_no_turn():
    found = routed(router(block=1), rows([b"a", None, None, None], [2, 0, None, None]), 3, 0)
    assert found.tolist() == [2, 0, 0, 1]
    assert routed(router(), rows([None, None], [None, None]), 3, 0).tolist() == [0, 0]


@pytest.mark.parametrize("wrong", [-1, 3, 2**31 - 1])
def test_a_partition_that_is_not_there(wrong):
    with pytest.raises(OptionError, match=f"a row's __partition is {wrong}, but the topic has 3 partitions"):
        routed(router(), rows([None, None], [1, wrong]), 3, 0)
    with pytest.raises(
        OptionError, match=f"a partition number of messageRouter is {wrong}, but the topic has 3"
    ):
        routed(router(RoutingMode.CUSTOM, lambda keys, _: [wrong] * len(keys)), keyless(2), 3, 0)


@pytest.mark.parametrize("make", [list, np.array, pa.array])
def test_a_custom_router_decides_for_all_rows_but_those_that_say_it(make):
    def last_byte(keys, partitions):
        return make([0 if key is None else key[-1] % partitions for key in keys.to_pylist()])

    one = router(RoutingMode.CUSTOM, last_byte)
    assert routed(one, rows([b"a1", None, b"a2", b"a0"], [None, None, None, 1]), 3, 0).tolist() == [
        1,
        0,
        2,
        1,
    ]
    assert routed(one, keyless(0), 3, 0).tolist() == []


@for_each("partitions", [1, 3])
@for_each("mode", RoutingMode)
def test_each_row_gets_an_int32(mode, partitions):
    custom = (lambda keys, _: [0] * len(keys)) if mode is RoutingMode.CUSTOM else None
    found = routed(router(mode, custom), rows([b"a", None]), partitions, 0)
    assert (found.dtype, found.shape) == (np.int32, (2,))


@pytest.mark.parametrize("answer", [[1], [1.0, 2.0], [None, 1], None, [True, False]])
def test_what_a_custom_router_must_not_return(answer):
    with pytest.raises(OptionError, match=r"messageRouter returned .* for 2 keys"):
        routed(router(RoutingMode.CUSTOM, lambda keys, partitions: answer), keyless(2), 3, 0)
