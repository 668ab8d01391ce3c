"""Each message of a micro-batch once, against the real broker: what a second run of a task does."""

from __future__ import annotations

import logging
import random
from contextlib import closing

import pytest
from pulsar_spark.client.reading.last_stored import find_last_stored

from integration.broker.waiting import FAR_AWAY
from integration.chaos.messages import columns_of, decoded, number_of, numbered, read_topic
from integration.fix_once import ONCE_PARTITIONS
from integration.peer import Peer, Record
from pulsar_spark.client import Client, DedupTask, Producer, ProducerOptions, TopicWriter
from pulsar_spark.errors import OptionError, SendError
from pulsar_spark.ids import TopicName
from pulsar_spark.wire.singles import encode_singles

pytestmark = pytest.mark.usefixtures("leaves_nothing")

ROWS = 600


def run(
    client: Client,
    topic: str,
    records: list[Record],
    *,
    batch: int = 0,
    dies_after: int | None = None,
    required: bool = False,
    **options: object,
) -> None:
    """One run of a task; it dies when `dies_after` records are stored, or comes to its end."""
    how = ProducerOptions(**{"send_timeout": FAR_AWAY, **options})  # type: ignore[arg-type]
    name = TopicName.parse(topic)
    with DedupTask(client, "spark-query-0", batch, 0, required=required) as dedup:
        writer = TopicWriter(client, name, how, dedup=dedup)
        try:
            for first in range(0, len(records[:dies_after]), 100):
                writer.send(columns_of(records[first : min(first + 100, dies_after or len(records))]))
            if dies_after is None:
                writer.finish()
            else:
                writer.flush()
        finally:
            writer.close()


def numbers(peer: Peer, topic: str) -> list[int]:
    return [number_of(record) for record in peer.read_all(topic)]


def test_equal_runs_store_each_message_once(client, peer, once_topic, caplog):
    """With other sizes of batches, single messages between, and more of the same name in later batches."""
    records = numbered(ROWS, keys=20) + numbered(ROWS, first=ROWS)
    run(client, once_topic, records, dies_after=130, batching_max_messages=7)
    run(client, once_topic, records, dies_after=700, batching_max_messages=1000)
    run(client, once_topic, records, batching_max_messages=33)
    run(client, once_topic, records, batching_max_messages=50)
    later = numbered(10, first=2 * ROWS, keys=3)
    run(client, once_topic, later, batch=1)
    run(client, once_topic, later, batch=1)
    read = peer.read_all(once_topic)
    assert sorted(map(number_of, read)) == list(range(2 * ROWS + 10))
    for key in {record.key for record in records + later if record.key}:
        ordered = [number_of(record) for record in read if record.key == key]
        assert ordered == sorted(ordered)
    assert not caplog.records


def test_single_messages_are_stored_once(client, peer, once_topic, caplog):
    records = numbered(200, keys=20)
    run(client, once_topic, records, dies_after=90, batching=False)
    run(client, once_topic, records, batching=False)
    assert sorted(numbers(peer, once_topic)) == list(range(200))
    assert not caplog.records


@pytest.mark.parametrize("change", ["order", "fewer", "batching"])
def test_a_run_that_differs_is_stored_twice_with_a_warning(client, peer, once_topic, caplog, change):
    records = numbered(ROWS, keys=20)
    run(client, once_topic, records, dies_after=400)
    again = {"order": random.Random(1).sample(records, ROWS), "fewer": records[:300], "batching": records}
    run(client, once_topic, again[change], batching=change != "batching")
    read = numbers(peer, once_topic)
    expected = set(range(400)) | {number_of(record) for record in again[change]}
    assert set(read) == expected
    assert len(read) == 400 + len(again[change])
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == ONCE_PARTITIONS
    assert all("may be duplicated" in text and "spark-query-0" in text for text in warnings)
    # What was sent under other names is not taken for stored by a run that is like the first.
    caplog.clear()
    run(client, once_topic, records)
    assert set(numbers(peer, once_topic)) == set(range(ROWS))
    assert len(numbers(peer, once_topic)) == 400 + len(again[change]) + ROWS - 400
    assert not caplog.records


def test_a_checkpoint_that_was_set_back_loses_nothing(client, peer, once_topic, caplog):
    run(client, once_topic, numbered(10, keys=1), batch=5)
    run(client, once_topic, numbered(10, first=10, keys=1), batch=2)
    assert sorted(numbers(peer, once_topic)) == list(range(20))
    assert "the checkpoint was set back" in caplog.text


def test_two_runs_that_take_turns_are_told_apart(client, admin, peer, once_topic):
    """The first one loses its producers while it waits for rows, the second one has the name meanwhile."""
    records = numbered(ROWS, keys=20)
    how = ProducerOptions(send_timeout=FAR_AWAY)
    with (
        DedupTask(client, "spark-query-0", 0, 0, required=False) as dedup,
        closing(TopicWriter(client, TopicName.parse(once_topic), how, dedup=dedup)) as first,
    ):
        first.send(columns_of(records[:200]))
        first.flush()
        for number in range(ONCE_PARTITIONS):
            admin.unload(f"{once_topic}-partition-{number}")
        run(client, once_topic, records[:400])
        with pytest.raises(SendError, match=r"somebody else.* has written under the producer name"):  # noqa: PT012
            first.send(columns_of(records[200:]))
            first.flush()
    run(client, once_topic, records)
    assert sorted(numbers(peer, once_topic)) == list(range(ROWS))


def test_effectively_once_is_proven_by_what_no_consumer_sees(client, peer, once_topic, admin, topic):
    run(client, once_topic, numbered(10, keys=5), required=True)
    run(client, once_topic, numbered(10, first=10, keys=5), batch=1, required=True)
    assert sorted(numbers(peer, once_topic)) == list(range(20))
    assert sorted(number_of(record) for record in read_topic(client, once_topic)) == list(range(20))
    admin.create_topic(topic)
    with pytest.raises(OptionError, match="set-deduplication"):
        run(client, topic, numbered(10), required=True)
    run(client, topic, numbered(3))
    assert sorted(numbers(peer, topic)) == [0, 1, 2]


def test_what_is_not_found_is_sent_again(client, peer, once_topic, caplog):
    """Another program has used the name: the last entry has no mark, or there is none of that id."""
    topic = TopicName.parse(once_topic).of_partition(0)
    producer = Producer(client, topic, ProducerOptions(name="spark-query-0"), 1, first_sequence_id=2**32)
    producer.send_singles(encode_singles(columns_of(numbered(5))))
    producer.flush()
    producer.close()
    run(client, str(topic), numbered(7, first=5))
    assert sorted(numbers(peer, str(topic))) == list(range(12))
    assert "was not found" in caplog.text
    found = find_last_stored(client, topic, "spark-query-0", 2**32 + 2)
    assert found is not None
    assert decoded(found).value.to_pylist() == [b"2 "]
    assert find_last_stored(client, topic, "spark-query-0", 2**32 - 1) is None
