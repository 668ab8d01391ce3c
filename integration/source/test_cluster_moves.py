"""A query's move to another cluster, to which its topic is replicated: all that was copied, each row once."""

from collections import defaultdict

import pytest
from pyspark.sql import functions as f

from integration.broker.waiting import wait_until
from integration.fixtures.spark import PulsarInSpark
from integration.helpers.peer import CompressionType, Peer, Record
from integration.helpers.raw import RawConnection, RawProducer
from integration.helpers.triggers import Triggers, logged
from pulsar_spark.client import ClientOptions, PlanningClient
from pulsar_spark.errors import DataLossError
from pulsar_spark.ids import TopicName

BATCH = 10
PARTITIONS = 2


@pytest.fixture(scope="module")
def namespace(two_clusters):
    return two_clusters.create_namespace("moves")


def produce(clusters, name, topic, numbers, **options):
    """Keyed batches; the value names the key and the number."""
    records = [Record(b"%d %d" % (number % 4, number), key=str(number % 4)) for number in numbers]
    with Peer(clusters.broker(name).service_url) as peer:
        peer.produce(topic, records, batch_size=BATCH, compression=CompressionType.LZ4, **options)


def numbers_by_key(rows):
    found = defaultdict(list)
    for *_, value in rows:
        key, number = value.split()
        found[key].append(int(number))
    return {key: found[key] for key in sorted(found)}


def expected(numbers):
    return numbers_by_key([(b"%d %d" % (number % 4, number),) for number in numbers])


@pytest.mark.parametrize("options", [{}, {"minPartitions": "5"}], ids=["", "split"])
def test_a_micro_batch_that_did_not_finish_has_the_same_rows(two_clusters, geo_topic, options):
    produce(two_clusters, "a", geo_topic, range(200))
    limits = {"maxMessagesPerTrigger": "37"} | options
    rows = []
    with Triggers(two_clusters.a.service_url, geo_topic, **limits) as triggers:
        batches = triggers.available_now()
        for _ in range(3):
            rows += triggers.rows(next(batches))
        unfinished = next(batches)
        expected_again = triggers.rows(unfinished)
    produce(two_clusters, "a", geo_topic, range(200, 240))
    two_clusters.await_replicated("a", geo_topic)
    start, end = logged(unfinished.start), logged(unfinished.end)
    with Triggers(two_clusters.b.service_url, geo_topic, **limits) as triggers:
        again = triggers.rows(triggers.planner.ranges(start, end))
        assert sorted(each[2] for each in again) == sorted(each[2] for each in expected_again)
        rows += again + triggers.read_all(end)
    assert numbers_by_key(rows) == expected(range(240))


def test_a_chunked_message_that_the_move_cuts(two_clusters, geo_topic):
    """Its first chunk lies before what was read, and its last one after that."""
    partition = f"{geo_topic}-partition-0"
    with RawConnection(two_clusters.a.service_url) as connection:
        producer = RawProducer(connection, partition)

        def send_chunk(number):
            part = (b"0 ", b"01")[number]
            producer.send(part, uuid="u", chunk_id=number, num_chunks_from_msg=2, total_chunk_msg_size=4)

        send_chunk(0)
        producer.send(b"0 00")
        with Triggers(two_clusters.a.service_url, geo_topic) as triggers:
            (batch,) = triggers.available_now()
            rows = triggers.rows(batch)
        send_chunk(1)
        producer.send(b"0 02")
    two_clusters.await_replicated("a", geo_topic)
    with Triggers(two_clusters.b.service_url, geo_topic) as triggers:
        rows += triggers.read_all(logged(batch.end))
    assert numbers_by_key(rows) == {b"0": [0, 1, 2]}


def test_rows_that_are_copied_after_the_move(two_clusters, geo_topic, caplog):
    """Both clusters are written to, and b was cut off while the query read in a."""
    produce(two_clusters, "a", geo_topic, range(80))
    two_clusters.await_replicated("a", geo_topic)
    with Triggers(two_clusters.a.service_url, geo_topic) as triggers:
        (batch,) = triggers.available_now()
        rows = triggers.rows(batch)
    with two_clusters.cut("a"):
        produce(two_clusters, "a", geo_topic, range(80, 120))
        produce(two_clusters, "b", geo_topic, range(120, 160))
        with Triggers(two_clusters.a.service_url, geo_topic) as triggers:
            late = triggers.next_batch(batch.end)
            rows += triggers.rows(late)
        assert late.end.witness == batch.end.witness  # a new one might not be copied yet
        start, end = logged(late.start), logged(late.end)
        with (
            Triggers(two_clusters.b.service_url, geo_topic) as triggers,
            pytest.raises(DataLossError, match="have not been copied to this cluster"),
        ):
            triggers.planner.ranges(start, end)
        with Triggers(two_clusters.b.service_url, geo_topic) as triggers:
            moved = triggers.planner.latest(end)
            assert "moves from cluster 'a'" in caplog.text
            assert triggers.planner.ranges(end, moved) == []
            own = triggers.next_batch(moved)
            rows += triggers.rows(own)
    two_clusters.await_replicated("a", geo_topic)
    produce(two_clusters, "a", geo_topic, range(160, 200))
    two_clusters.await_replicated("a", geo_topic)
    with Triggers(two_clusters.b.service_url, geo_topic) as triggers:
        rows += triggers.read_all(logged(own.end))
    found = {key: sorted(numbers) for key, numbers in numbers_by_key(rows).items()}
    # What was written to b may have arrived in a before the link was cut.
    assert {key: sorted(set(numbers)) for key, numbers in found.items()} == expected(range(200))
    assert [each for each in found[b"0"] if found[b"0"].count(each) > 1 and not 120 <= each < 160] == []


def test_clients_may_write_what_seems_to_be_a_copy(two_clusters, geo_topic):
    """So a query must not take it for more than it is: see the tests of `spark/plan/clusters.py`."""
    (partition, *_) = (TopicName.parse(geo_topic).of_partition(number) for number in range(2))
    with RawConnection(two_clusters.b.service_url) as connection:
        property_ = {"key": b"__MSG_PROP_REPL_SOURCE_POSITION", "value": b"3:1"}
        RawProducer(connection, str(partition)).send(b"x", replicated_from="x", properties=[property_])
    client = PlanningClient.shared(ClientOptions(service_url=two_clusters.b.service_url))
    entry = client.probe_entry(partition, client.bounds(partition).last)
    assert str(entry.source.position) == "3:1"
    wait_until(lambda: two_clusters.backlog("b", geo_topic) == 0)


def test_moves_there_and_back_are_exact_where_replication_is_drained(two_clusters, geo_topic):
    """Producers move with the query, which has a few micro-batches in each cluster."""
    rows, start = [], None
    for turn, name in enumerate("ababab"):
        produce(two_clusters, name, geo_topic, range(40 * turn, 40 * turn + 40))
        url = two_clusters.broker(name).service_url
        with Triggers(url, geo_topic, maxMessagesPerTrigger="10") as triggers:
            for batch in triggers.available_now(start):
                rows += triggers.rows(batch)
                start = logged(batch.end)
        two_clusters.await_replicated(name, geo_topic)
    assert start.left.cluster == "a"
    assert numbers_by_key(rows) == expected(range(240))


def test_spark_moves_a_query_and_its_state(two_clusters, geo_topic, spark, tmp_path):
    counts = {}

    def write(batch, number):
        counts[number] = {bytes(row["key"]): row["count"] for row in batch.collect()}

    for name, numbers in (("a", range(80)), ("b", range(80, 120))):
        produce(two_clusters, "a", geo_topic, numbers)
        two_clusters.await_replicated("a", geo_topic)
        rows = PulsarInSpark(spark, two_clusters.broker(name).service_url).stream(geo_topic)
        counted = rows.groupBy(f.col("__key").alias("key")).count()
        running = counted.writeStream.outputMode("complete").foreachBatch(write)
        running = running.option("checkpointLocation", str(tmp_path / "checkpoint"))
        running.trigger(availableNow=True).start().awaitTermination()
    assert counts[max(counts)] == {b"%d" % key: 30 for key in range(4)}
