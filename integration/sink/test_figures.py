"""What each written micro-batch reports to the driver."""

import json
from typing import Any

import pytest
from pyspark.errors import PySparkException

from integration.fixtures.spark import begun, finish
from integration.helpers.peer import Record
from integration.helpers.users_code import notes_of
from integration.spark.test_roundtrip import serialized_ids
from pulsar_spark.wire import pulsar_pb2 as pb

TOLD = {"onBatchWritten": "integration.helpers.users_code.note_figures"}


@pytest.fixture
def notes(topic):
    file = notes_of(f"{topic}-out")
    yield file
    file.unlink(missing_ok=True)


def ids_of(peer, topic):
    """The ids of all messages, as we write them."""
    parsed = [pb.MessageIdData.FromString(each) for each in serialized_ids(peer, topic)]
    return [f"{each.ledgerId}:{each.entryId}:{each.batch_index}" for each in parsed]


def test_figures_of_micro_batches_and_of_a_batch(pulsar_in_spark, admin, peer, topic, checkpoint, notes):
    out = f"{topic}-out"
    admin.create_partitioned_topic(out, 2)
    peer.produce(topic, [Record(b"%d" % number) for number in range(100)])
    rows = pulsar_in_spark.stream(topic).selectExpr(
        "value", "cast(cast(value as string) as int) % 2 as __partition"
    )
    finish(begun(pulsar_in_spark.write_stream(rows, checkpoint, out, **TOLD).trigger(availableNow=True)))
    pulsar_in_spark.write(pulsar_in_spark.rows([("last", 1)], "value string, __partition int"), out, **TOLD)

    told: list[Any] = [json.loads(line) for line in notes.read_text().splitlines()]
    *streamed, (batch, [[name, messages, size, first, last]]) = told
    even, odd = ids_of(peer, f"{out}-partition-0"), ids_of(peer, f"{out}-partition-1")
    assert (batch, name, messages, first, last) == (None, f"{out}-partition-1", 1, odd[-1], odd[-1])
    assert size > 4
    ((number, figures),) = [each for each in streamed if each[1]]
    assert number == 0
    assert [(name, messages, first, last) for name, messages, _, first, last in figures] == [
        (f"{out}-partition-0", 50, even[0], even[-1]),
        (f"{out}-partition-1", 50, odd[0], odd[-2]),
    ]


def test_a_function_that_is_not_there_is_an_error_before_anything_is_written(pulsar_in_spark, admin, topic):
    rows = pulsar_in_spark.rows([("a",)], "value string")
    with pytest.raises(PySparkException, match=r"\[PULSAR_OPTION\] option onBatchWritten is no_such.name"):
        pulsar_in_spark.write(rows, topic, onBatchWritten="no_such.name")
    assert topic not in admin.topics()
