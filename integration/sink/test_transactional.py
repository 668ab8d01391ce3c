"""Streams and batches written with `delivery=transactional`, read by the C++ client."""

import pytest
from pyspark.errors import StreamingQueryException

from integration.fixtures.spark import finish
from integration.fixtures.transactions import transactional_cluster
from integration.helpers.peer import Record
from integration.helpers.transactions import assert_once, write_files
from integration.ops.test_examples import check_copy

cluster = transactional_cluster

ROWS = 40


@pytest.fixture
def topic(topic, admin):
    """A topic of two partitions, whose data is held."""
    admin.create_held_topic(topic, 2)
    return topic


def test_the_example(pulsar_in_spark, topic, checkpoint):
    """examples/exactly_once_copy.py in its second way."""
    url, source = pulsar_in_spark.service_url, f"{topic}-source"
    check_copy(pulsar_in_spark.spark, url, source, f"{topic}-copy", checkpoint, "transactional")


def test_a_task_that_fails_takes_all_with_it(pulsar_in_spark, peer, topic, tmp_path, checkpoint):
    """Readers see nothing of it and wait for nothing, and the next run writes each row once."""
    write_files(tmp_path, 1, ROWS)
    broken = tmp_path / "broken"
    broken.touch()

    def fail(batches):
        for batch in batches:
            if broken.exists() and "7" in batch[0].to_pylist():
                yield batch[:1]
                raise RuntimeError("a failure that was asked for")
            yield batch

    def run():
        rows = pulsar_in_spark.spark.readStream.text(str(tmp_path / "in"))
        spread = rows.repartition(2).mapInArrow(fail, rows.schema)
        writer = pulsar_in_spark.write_stream(spread, checkpoint, topic, delivery="transactional")
        finish(writer.trigger(availableNow=True).start())

    with pytest.raises(StreamingQueryException, match="asked for"):
        run()
    assert peer.read_all(topic) == []
    broken.unlink()
    run()
    assert_once(pulsar_in_spark.service_url, topic, ROWS)
    peer.produce(topic, [Record(b"%d" % number) for number in range(ROWS, 2 * ROWS)])
    assert_once(pulsar_in_spark.service_url, topic, 2 * ROWS)


def test_no_row_of_a_committed_micro_batch_is_sent_again(pulsar_in_spark, admin, topic, tmp_path, checkpoint):
    """The driver is stopped after the commit, and before Spark notes the micro-batch; then new rows come."""
    write_files(tmp_path, 1, ROWS)

    def run():
        rows = pulsar_in_spark.spark.readStream.text(str(tmp_path / "in")).repartition(2)
        writer = pulsar_in_spark.write_stream(rows, checkpoint, topic, delivery="transactional")
        finish(writer.trigger(availableNow=True).start())
        return int(admin.partitioned_stats(topic)["msgInCounter"])

    assert run() == ROWS
    for note in (checkpoint / "commits").iterdir():
        note.unlink()
    assert run() == ROWS
    (tmp_path / "in" / "more.txt").write_text(f"{ROWS}\n")
    assert run() == ROWS + 1
    assert_once(pulsar_in_spark.service_url, topic, ROWS + 1)


def test_a_batch_write(pulsar_in_spark, topic):
    rows = pulsar_in_spark.spark.range(ROWS).repartition(2).selectExpr("string(id) AS value")
    pulsar_in_spark.write(rows, topic, delivery="transactional")
    assert_once(pulsar_in_spark.service_url, topic, ROWS)


def test_each_transaction_has_producers_of_its_own(pulsar_in_spark, topic):
    """Two queries with one producerName cannot have rows of each other dropped."""
    rows = pulsar_in_spark.spark.range(ROWS).repartition(2).selectExpr("string(id) AS value")
    named = {"pulsar.producer.producerName": "mine"}
    for _ in range(2):
        pulsar_in_spark.write(rows, topic, delivery="transactional", **named)
    found = pulsar_in_spark.read(topic, metadataColumns="__producerName").collect()
    assert sorted(int(row.value) for row in found) == sorted([*range(ROWS), *range(ROWS)])
    by_task_and_transaction = [row["__producerName"].split("-") for row in found]
    assert {len(parts) for parts in by_task_and_transaction} == {4}
    assert {(parts[0], parts[1]) for parts in by_task_and_transaction} == {("mine", "0"), ("mine", "1")}
    assert len({tuple(parts[2:]) for parts in by_task_and_transaction}) == 4
