"""What a task gives of its range where a topic is gone or an entry cannot be decoded."""

import gc
import json
import logging
import pickle
import re
import signal
import threading
from contextlib import nullcontext

import pytest
from pyspark import SparkFiles
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.types import LongType, StringType, StructType

from pulsar_spark.client import PlanningClient, Range, Schema, SchemaType, now
from pulsar_spark.errors import CorruptError, DataLossError, OptionError, SchemaError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark import reader
from pulsar_spark.spark.data_source import PulsarDataSource
from pulsar_spark.spark.monitoring.driver_files import new_planner_id, planners_path, read_planners
from pulsar_spark.spark.monitoring.source_report import SourceReport
from pulsar_spark.spark.plan import ends
from pulsar_spark.spark.reader import PulsarReader, PulsarStreamReader
from pulsar_spark.spark.row_plan import RowPlan
from pulsar_spark.spark.rows.schema import SOURCE_SCHEMA
from pulsar_spark.spark.spark_api import arrow_schema
from pulsar_spark.wire.wire_values import to_wire_schema
from tests.client.clients import START, TOPIC, client_of, singles, wait_until
from tests.fake_broker import HANG
from tests.fake_clients import Type
from tests.fake_topics import section_of


@pytest.fixture(params=[PulsarReader, PulsarStreamReader])
def task(request, broker, monkeypatch):
    """Reads a range as a task does; gives the values of its rows."""
    with client_of(broker) as client:
        monkeypatch.setattr(reader, "shared_client", lambda options: client)

        def run(*ranges, **options):
            given = {"service.url": broker.url, "topic": str(TOPIC), **options}
            batches = request.param(given, SOURCE_SCHEMA).read(InputPartition(ranges))
            return [value for batch in batches for value in batch.column("value").to_pylist()]

        yield run


def test_the_rows_of_a_range(broker, task):
    ids = broker.publish(TOPIC, *singles([b"a", b"b", b"c"]))
    assert task(Range(TOPIC, ids[0], ids[-1])) == [b"b", b"c"]


def test_short_ranges_share_record_batches(broker, monkeypatch):
    """The first is given at once; each batch has a cost of its own in Spark."""
    names = [TopicName.parse(f"short-{number}") for number in range(20)]
    ids = {name: broker.publish(name, *singles([str(name).encode()]))[-1] for name in names}
    given = {"service.url": broker.url, "topic": str(TOPIC)}
    with client_of(broker) as client:
        monkeypatch.setattr(reader, "shared_client", lambda options: client)
        monkeypatch.setattr("pulsar_spark.client.reading.decode._JOINED_SECONDS", HANG)
        ranges = tuple(Range(name, START, ids[name]) for name in names)
        first, rest = PulsarReader(given, SOURCE_SCHEMA).read(InputPartition(ranges))
    rows = [*first.to_pylist(), *rest.to_pylist()]
    assert first.num_rows == 1
    assert (
        [row["__topic"] for row in rows] == [row["value"].decode() for row in rows] == list(map(str, names))
    )


def test_a_task_says_what_it_has_read(broker, task, caplog):
    ids = broker.publish(TOPIC, *singles([b"a", b"b", b"c"]))
    each = Range(TOPIC, ids[0], ids[-1])
    with caplog.at_level(logging.INFO):
        task(each)
    (line,) = [record.getMessage() for record in caplog.records if record.name == reader.__name__]
    assert re.fullmatch(rf"{TOPIC} \({ids[0]}, {ids[-1]}\]: 2 messages \(\d+ bytes\) in \d+\.\d{{3}} s", line)


def test_the_log_level_of_a_query_holds_in_its_tasks(broker, task):
    ids = broker.publish(TOPIC, *singles([b"a"]))
    logger = logging.getLogger("pulsar_spark")
    try:
        for level, expected in (("info", logging.INFO), ("ERROR", logging.ERROR)):
            task(Range(TOPIC, START, ids[-1]), logLevel=level)
            assert logger.level == expected
        task(Range(TOPIC, START, ids[-1]))
        assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(logging.NOTSET)


def test_a_topic_that_is_gone(task, caplog):
    gone = TopicName.parse("gone")
    each = Range(gone, MessageId(5, 1), MessageId(5, 3))
    with pytest.raises(
        DataLossError, match=r"deleted; topic .*/gone; message \(5:1, 5:3\].*failOnDataLoss=false"
    ):
        task(each)
    assert task(each, failOnDataLoss="false") == []
    assert "the topic was deleted; topic persistent://public/default/gone; message (5:1, 5:3]" in caplog.text


def test_a_batch_that_cannot_be_decoded(broker, task, caplog):
    bad = section_of(b"\0\0\0\x02\x18\0", num_messages_in_batch=2)
    ids = broker.publish(TOPIC, *singles([b"a"]), bad, *singles([b"b"]))
    each = Range(TOPIC, START, ids[-1])
    with pytest.raises(CorruptError, match=f"message {ids[1]}.*failOnDataLoss=false"):
        task(each)
    assert task(each, failOnDataLoss="false") == [b"a", b"b"]
    assert f"topic {TOPIC}; message {ids[1]}" in caplog.text


@pytest.mark.parametrize("ending", ["error", "close"])
def test_nothing_is_left_to_the_garbage_collector(broker, monkeypatch, ending):
    bad = section_of(b"\0\0\0\x02\x18\0", num_messages_in_batch=2)
    ids = broker.publish(TOPIC, *singles([b"a"] * 4), bad, *singles([b"b"]))
    given = {"service.url": broker.url, "topic": str(TOPIC)}
    with client_of(broker) as client:
        monkeypatch.setattr(reader, "shared_client", lambda options: client)
        monkeypatch.setattr(RowPlan, "max_rows", 1)
        rows = PulsarReader(given, SOURCE_SCHEMA).read(InputPartition((Range(TOPIC, START, ids[-1]),)))
        gc.disable()
        try:
            next(rows)
            if ending == "close":
                rows.close()  # type: ignore[attr-defined]  # a generator's
            else:
                with pytest.raises(CorruptError) as kept:  # with all frames that it came through
                    list(rows)
                assert kept.tb is not None
            wait_until(lambda: broker.seen(Type.CLOSE_CONSUMER))
        finally:
            gc.enable()


# ---- tasks of several ranges


def many(broker, count):
    """Partitions with two messages each, and a range of each."""
    topics = [TopicName.parse("many").of_partition(number) for number in range(count)]
    broker.create(topics[0].base, partitions=count)
    return [
        Range(topic, START, broker.publish(topic, *singles([b"%d/0" % number, b"%d/1" % number]))[-1])
        for number, topic in enumerate(topics)
    ]


def values_of(*numbers):
    return [b"%d/%d" % (number, entry) for number in numbers for entry in range(2)]


def test_the_rows_of_several_ranges_and_where_they_are_from(broker, monkeypatch):
    ranges = many(broker, 20)
    given = {"service.url": broker.url, "topic": "many"}
    with client_of(broker) as client:
        monkeypatch.setattr(reader, "shared_client", lambda options: client)
        batches = list(PulsarReader(given, SOURCE_SCHEMA).read(InputPartition(tuple(ranges))))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["value"] for row in rows] == values_of(*range(20))
    assert [row["__topic"] for row in rows] == [str(each.topic) for each in ranges for _ in range(2)]
    broker.wait_for(lambda: broker.open_consumers == [])


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_topic_that_is_gone_among_others(broker, task, caplog, place):
    ranges = many(broker, 4)
    ranges.insert(place, Range(TopicName.parse("gone"), MessageId(5, 1), MessageId(5, 3)))
    with pytest.raises(DataLossError, match=r"deleted; topic .*/gone; message \(5:1, 5:3\]"):
        task(*ranges)
    assert task(*ranges, failOnDataLoss="false") == values_of(0, 1, 2, 3)
    assert "the topic was deleted; topic persistent://public/default/gone" in caplog.text
    broker.wait_for(lambda: broker.open_consumers == [])


def test_an_entry_that_cannot_be_decoded_among_others(broker, task):
    ranges = many(broker, 3)
    bad = section_of(b"\0\0\0\x02\x18\0", num_messages_in_batch=2)
    last = broker.publish(ranges[1].topic, bad, *singles([b"after"]))[-1]
    ranges[1] = ranges[1]._replace(end=last)
    with pytest.raises(CorruptError, match="many-partition-1; message"):
        task(*ranges)
    expected = [*values_of(0, 1), b"after", *values_of(2)]
    assert task(*ranges, failOnDataLoss="false") == expected


def test_rows_that_are_not_wanted_any_more_leave_nothing_open(broker, monkeypatch):
    ranges = many(broker, 20)
    given = {"service.url": broker.url, "topic": "many"}
    before = threading.active_count()
    with client_of(broker) as client:
        monkeypatch.setattr(reader, "shared_client", lambda options: client)
        rows = PulsarReader(given, SOURCE_SCHEMA).read(InputPartition(tuple(ranges)))
        next(rows)
        rows.close()  # type: ignore[attr-defined]  # a generator's
        broker.wait_for(lambda: broker.open_consumers == [])
    wait_until(lambda: threading.active_count() == before)


def test_ranges_of_a_read_share_tasks(broker, monkeypatch):
    ranges = many(broker, 40)
    with client_of(broker) as client:
        monkeypatch.setattr(reader, "shared_client", lambda options: client)
        monkeypatch.setattr(PlanningClient, "shared", lambda *_, **__: PlanningClient(client))
        monkeypatch.setattr(PlanningClient, "impatient", lambda self: nullcontext(self))

        def planned(**options):
            given = {"service.url": broker.url, "topic": "many", **options}
            return [task.value for task in PulsarReader(given, SOURCE_SCHEMA).partitions()]

        tasks = planned()
        assert [len(task) for task in tasks] == [2] * 20
        assert [each.topic for task in tasks for each in task] == [each.topic for each in ranges]
        assert planned() == tasks
        assert len(planned(minPartitions="40")) == 40
        assert len(planned(maxMessagesPerPartition="4000")) == 20
        assert len(planned(maxMessagesPerPartition="3999")) == 40


# ---- payloads read by their schema

INT32 = Schema(SchemaType.INT32)
VERSIONED = {"schema_version": bytes(8)}


@pytest.fixture(params=[PulsarReader, PulsarStreamReader])
def typed(request, broker, monkeypatch):
    """Makes a reader of a topic of numbers as Spark does, sends it to a task and reads all; gives rows."""
    with broker.changed:
        broker.schemas.register(str(TOPIC), to_wire_schema(INT32))
    with client_of(broker) as client:
        monkeypatch.setattr(reader, "shared_client", lambda options: client)

        def run(last, wanted=None, **options):
            given = {"service.url": broker.url, "topic": str(TOPIC), "valueFormat": "columns", **options}
            source = PulsarDataSource(CaseInsensitiveDict(given))
            schema = source.schema() if wanted is None else wanted
            source = pickle.loads(pickle.dumps(source))
            made = source.reader(schema) if request.param is PulsarReader else source.streamReader(schema)
            task = pickle.loads(pickle.dumps(made))
            batches = list(task.read(InputPartition((Range(TOPIC, START, last),))))
            assert all(batch.schema.equals(arrow_schema(schema)) for batch in batches)
            return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

        yield run


def test_typed_rows(broker, typed):
    ids = broker.publish(TOPIC, *singles([b"\0\0\0\7", b"\xff\xff\xff\xff"], **VERSIONED))
    assert typed(ids[-1], metadataColumns="__offset") == [(7, str(ids[0])), (-1, str(ids[1]))]
    wanted = StructType().add("__topic", StringType()).add("value", LongType())
    assert typed(ids[-1], wanted) == [(str(TOPIC), 7), (str(TOPIC), -1)]


def test_a_value_that_is_none_ends_the_task_after_the_rows_before(broker, typed, monkeypatch):
    monkeypatch.setattr(RowPlan, "max_rows", 2)
    good, bad = singles([b"\0\0\0\7"], **VERSIONED), singles([b"\0\7"], **VERSIONED)
    ids = broker.publish(TOPIC, *good * 4, *bad, *good)
    with pytest.raises(SchemaError, match=f"version 0 cannot be read: .*topic {TOPIC}; message {ids[4]}"):
        typed(ids[-1])
    left = [(7,)] * 5
    assert typed(ids[-1], metadataColumns="", mode="DROPMALFORMED") == left
    rows = typed(ids[-1], metadataColumns="__corruptValue", mode="PERMISSIVE")
    assert rows == [(7, None)] * 4 + [(None, b"\0\7"), (7, None)]


def test_a_topic_that_got_its_schema_late(broker, typed):
    ids = broker.publish(TOPIC, *singles([b"\0\0\0\7"]))
    with pytest.raises(SchemaError, match=r"no schema version: .*mode to PERMISSIVE .* startingOffsets"):
        typed(ids[-1])


def test_a_schema_that_cannot_be_asked_for_is_the_first_calls_error(broker):
    given = {"service.url": broker.url, "topic": str(TOPIC), "valueFormat": "columns"}
    made = PulsarDataSource(CaseInsensitiveDict(given)).streamReader(StructType().add("value", LongType()))
    for call in (made.initialOffset, lambda: list(made.read(InputPartition(None)))):
        with pytest.raises(OptionError, match="NONE values are binary and cannot be read as bigint"):
            call()


def test_what_the_planner_reports_is_there_for_the_listener_while_it_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    planner = new_planner_id()
    report = SourceReport(planner, "s", 1, 2, (), None, 0, 0)

    closed = []

    class Planner:
        def __init__(self, options):
            pass

        def report(self):
            return report.to_json()

        def close(self):
            assert read_planners(planners_path()) == {}, "it is gone before the subscription is let go"
            closed.append(self)

    monkeypatch.setattr(reader, "QueryPlanner", Planner)
    source = PulsarStreamReader({"service.url": "pulsar://localhost:1", "topic": "t"}, SOURCE_SCHEMA)
    assert source.reportLatestOffset() == report.to_json()
    assert read_planners(planners_path()) == {planner: report}
    source.stop()
    assert len(closed) == 1


# ---- triggers of a stream


def test_a_stream_waits_for_news_where_it_is_asked_again_and_again(broker, monkeypatch, tmp_path):
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    broker.publish(TOPIC, *singles([b"a"]))
    with client_of(broker) as client:
        planning = PlanningClient(client)
        monkeypatch.setattr(PlanningClient, "shared", lambda options, read_compacted: planning)
        monkeypatch.setattr(PlanningClient, "impatient", lambda self: nullcontext(self))
        source = PulsarStreamReader(
            {"service.url": broker.url, "topic": str(TOPIC), "startingOffsets": "earliest"}, SOURCE_SCHEMA
        )
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        start = json.dumps(source.initialOffset())

        def trigger():
            """As Spark does: with a new dict each time."""
            given = json.loads(start)
            found = source._next_end(given, limited=True)
            return found, found is given

        found, _ = trigger()
        (task,) = source.partitions(json.loads(start), found)
        assert [each.topic for each in task.value] == [TOPIC]
        start = json.dumps(found)

        def is_quiet():
            before = source.reportLatestOffset()["topics"]
            is_followed = source._started._partitions[TOPIC].tail is not None
            return trigger()[1] and source.reportLatestOffset()["topics"] is before and is_followed

        wait_until(is_quiet)
        topics = source.reportLatestOffset()["topics"]
        began = now()
        for _ in range(5):
            assert trigger()[1], "the very dict that Spark gave"
            assert source.reportLatestOffset()["topics"] is topics
        assert now() >= began + 4 * 0.05
        with monkeypatch.context() as patch:
            patch.setattr(ends, "_MIN_WAIT", HANG)
            publishing = threading.Timer(0.01, broker.publish, (TOPIC, *singles([b"b"])))
            publishing.start()
            began = now()
            wait_until(lambda: not trigger()[1])
            assert now() < began + HANG / 2, "news end the waiting"
            publishing.join()
        source.stop()
