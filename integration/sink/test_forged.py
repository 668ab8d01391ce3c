"""Others write under a task's producer name, with the ids of its next micro-batch: every row is stored."""

import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from integration.chaos.messages import columns_of, number_of, numbered
from integration.helpers.clients import entries_of
from integration.helpers.peer import Record
from integration.helpers.raw import RawConnection, RawProducer
from integration.helpers.replays import STRICT, Replays, number_in
from integration.helpers.task_runs import NAME, open_writer, run, task_of
from pulsar_spark.client import first_sequence_id, last_sequence_id
from pulsar_spark.ids import TopicName
from pulsar_spark.wire import pulsar_pb2 as pb

ROWS = 100
FIRST, SECOND, THIRD = (numbered(ROWS, first=ROWS * batch, keys=20) for batch in range(3))
OTHERS = numbered(3 * ROWS, first=1000, keys=20)
IDS = range(first_sequence_id(1), first_sequence_id(2))
LAST_ID = (1 << 63) - 1


def forge(client, topic, rows, ids, name=NAME, **options):
    """Write rows by ids under the name."""
    columns = replace(columns_of(rows), sequence_id=pa.array(ids[: len(rows)], pa.int64()))
    with closing(open_writer(client, topic, None, name=name, **options)) as writer:
        writer.send(columns)
        writer.flush()


def ids_after(client, topic):
    """Ids that the broker takes under the name."""
    last = last_sequence_id(client, TopicName.parse(topic), NAME, is_encrypted=False)
    return range(last + 1, last + 1001)


# What is written, and how: rows, their ids, and options of the producer.
FORGERIES: dict[str, tuple[Sequence[Record], range, dict[str, Any]]] = {
    "the same": (SECOND, IDS, {}),
    "others": (OTHERS[:ROWS], IDS, {}),
    "more": ([*SECOND, *OTHERS], IDS, {}),
    "fewer": (SECOND[: ROWS // 2], IDS, {}),
    "holes": (SECOND[::3], IDS[::3], {}),
    "another codec": (SECOND, IDS, {"compression": pb.ZSTD}),
    "single messages": (SECOND, IDS, {"batching": False}),
    "the last id": (OTHERS[:1], range(LAST_ID, LAST_ID + 1), {}),
}


@pytest.mark.parametrize("kind", FORGERIES)
@pytest.mark.parametrize(
    ("strict", "may_be_replay"), [(False, True), pytest.param(True, False, marks=pytest.mark.long)]
)
def test_entries_that_are_not_signed_change_nothing(
    client, peer, plain_once_topic, caplog, kind, strict, may_be_replay
):
    topic, (rows, ids, options) = plain_once_topic, FORGERIES[kind]
    run(client, topic, FIRST, task_of(client, strict=strict))
    forge(client, topic, rows, ids, **options)
    first = task_of(client, 1, strict=strict, may_be_replay=may_be_replay)
    assert run(client, topic, SECOND, first, dies_after=ROWS // 2, at_a_time=10) == ROWS // 2
    assert run(client, topic, SECOND, task_of(client, 1, strict=strict)) == ROWS // 2
    assert run(client, topic, THIRD, task_of(client, 2, strict=strict)) == ROWS
    forged = Counter(map(number_of, rows))
    assert Counter(map(number_of, peer.read_all(topic))) - forged == Counter(range(3 * ROWS))
    told = {record.message for record in caplog.records if record.levelno >= logging.WARNING}
    has_none_left = kind == "the last id"
    assert told == ({f"{topic}: somebody else has used the producer name {NAME}"} if has_none_left else set())


@pytest.mark.parametrize("strict", [False, True])
def test_copies_of_entries_of_an_earlier_micro_batch_change_nothing(
    client, cluster, peer, plain_once_topic, caplog, strict
):
    topic = plain_once_topic
    run(client, topic, FIRST, task_of(client, strict=strict), batching_max_messages=10)

    def copy(first):
        with RawConnection(cluster.service_url) as connection:
            producer = RawProducer(connection, topic, NAME)
            for number, entry in enumerate(entries_of(client, topic)[:10]):
                producer.copy(entry, first + 10 * number)

    copy(IDS[0])
    run(client, topic, SECOND, task_of(client, 1, strict=strict), dies_after=ROWS // 2)
    copy(ids_after(client, topic)[0])
    assert run(client, topic, SECOND, task_of(client, 1, strict=strict)) == ROWS // 2
    assert run(client, topic, SECOND, task_of(client, 1, strict=strict)) == 0
    copied = Counter(2 * [*range(ROWS)])
    assert Counter(map(number_of, peer.read_all(topic))) - copied == Counter(range(2 * ROWS))
    assert not caplog.records


def test_a_copy_of_the_first_entry_by_a_later_id_hides_no_row(client, cluster, peer, plain_once_topic):
    """Anybody who may produce can write it, under a producer name of their own."""
    topic = plain_once_topic
    run(client, topic, FIRST, dies_after=ROWS // 2, batching_max_messages=10)
    with RawConnection(cluster.service_url) as connection:
        first = entries_of(client, topic)[0]
        RawProducer(connection, topic, "stranger").copy(first, ids_after(client, topic)[50])
    assert run(client, topic, FIRST) == ROWS // 2
    copied = Counter(range(10))
    assert Counter(map(number_of, peer.read_all(topic))) - copied == Counter(range(ROWS))


def test_copies_of_entries_of_the_micro_batch_lose_nothing(client, cluster, peer, plain_once_topic):
    """Their signatures are valid. So rows may be stored again, with a warning; none is missing."""
    topic = plain_once_topic
    run(client, topic, FIRST)
    run(client, topic, SECOND, task_of(client, 1), dies_after=ROWS // 2, batching_max_messages=10)
    found, ids = entries_of(client, topic), ids_after(client, topic)
    with RawConnection(cluster.service_url) as connection:
        producer = RawProducer(connection, topic, NAME)
        for number, entry in enumerate([found[-1], *found[-5:], found[-2]]):
            producer.copy(entry, ids[100 * number])
            producer.copy(entry._replace(payload=found[0].payload), ids[100 * number + 50])
    for _ in range(2):
        run(client, topic, SECOND, task_of(client, 1))
    assert set(map(number_of, peer.read_all(topic))) == set(range(2 * ROWS))


@pytest.mark.parametrize("strict", [False, True])
def test_a_broker_that_believes_a_forged_id_after_a_restart_changes_nothing(
    client, cluster, admin, peer, plain_once_topic, strict
):
    """It takes the last id of a name from the last entry that bears the name."""
    topic = plain_once_topic
    run(client, topic, FIRST, task_of(client, strict=strict))
    run(client, topic, SECOND, task_of(client, 1, strict=strict), dies_after=ROWS // 2, at_a_time=10)
    with RawConnection(cluster.service_url) as connection:
        RawProducer(connection, topic).send(b"forged", producer_name=NAME, sequence_id=7)
    admin.unload(topic)
    assert last_sequence_id(client, TopicName.parse(topic), NAME, is_encrypted=False) == 7
    assert run(client, topic, SECOND, task_of(client, 1, strict=strict)) == ROWS // 2
    values = [record for record in peer.read_all(topic) if record.value != b"forged"]
    assert Counter(map(number_of, values)) == Counter(range(2 * ROWS))


@pytest.mark.parametrize(
    "options", [pytest.param({}, id="default", marks=pytest.mark.long), pytest.param(STRICT, id="strict")]
)
def test_a_query_stores_every_row_whatever_others_write_under_its_names(
    pulsar_in_spark, client, admin, peer, once_topic, tmp_path, options
):
    """They know the names from its first micro-batch, and take the ids of the second one."""

    def only_the_first(rows):
        number = f.substring_index("value", ".", 1).cast("int")
        return rows.withColumn("value", f.when(number < ROWS, f.col("value")).otherwise(f.raise_error("no")))

    query = Replays(pulsar_in_spark, admin.url, once_topic, tmp_path, rows=ROWS, keys=50, batches=2)
    query.fails("no", None, only_the_first, **options)
    for partition in client.partitions(TopicName.parse(once_topic)):
        (name,) = {entry.metadata.producer_name.decode() for entry in entries_of(client, str(partition))}
        forge(client, str(partition), OTHERS, IDS, name)
    query.run(**options)
    values = [record.value or b"" for record in peer.read_all(once_topic)]
    own = Counter(number_in(value) for value in values if b"." in value)
    assert own == Counter(range(2 * ROWS))
