"""What a task does with its rows: which writers it opens, in what order it ends, and what it reports."""

from __future__ import annotations

import json
import logging
import pickle
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, LongType, StringType, StructType, TimestampType

from pulsar_spark.client import (
    DedupTask,
    Origin,
    ProducerInterceptor,
    Replay,
    Schema,
    SentTotals,
    TaskPlace,
    Transaction,
    VersionedSchema,
)
from pulsar_spark.errors import AuthError, OptionError
from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.schema import SchemaType
from pulsar_spark.spark.options.parse import parse_sink
from pulsar_spark.spark.options.sink import Delivery
from pulsar_spark.spark.rows.write import message_shape
from pulsar_spark.spark.sink import task, topic_encoders
from pulsar_spark.spark.sink.commit_log import QueryLog
from pulsar_spark.spark.sink.micro_batch import micro_batch
from pulsar_spark.spark.sink.report import TaskReport
from pulsar_spark.spark.sink.task import write_task
from tests.spark.sink.fake_task import FakeTask, of_micro_batch, run_as

T, U = TopicName.parse("t"), TopicName.parse("u")
SCALABLE = TopicName.parse("topic://public/default/t", scalable=True)
ROWS = StructType().add("value", StringType()).add("__topic", StringType())
LOG = QueryLog(TopicName.parse("log"), 7)


class Fakes:
    """The client and the writers of a task; they record what is done."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.producer: Any = None
        self.given: dict[str, Any] = {}
        self.schemas = self
        self.latest = lambda topic: None

    def writers(self, open_writer: Any, producer: object, **given: Any) -> FakeWriters:
        kind, args, of_writer = open_writer(T, producer)
        assert (kind, args) == ("TopicWriter", (self, T, producer))
        assert open_writer(SCALABLE, producer)[:2] == ("SegmentWriter", (self, SCALABLE, producer))
        self.producer, self.given = producer, {**of_writer, **given}
        assert of_writer["dedup"] is given["dedup"]
        return FakeWriters(self)

    def partitions(self, topic: TopicName, *, create: bool = False) -> list[TopicName]:
        return [topic]


class FakeWriters:
    in_parallel = 2

    def __init__(self, fakes: Fakes) -> None:
        self.topics: dict[TopicName, None] = {}
        self._calls = fakes.calls

    def __enter__(self) -> FakeWriters:
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.append("close")

    def send(self, messages: Sequence[tuple[TopicName, Any]]) -> None:
        assert len(messages) <= self.in_parallel
        for topic, columns in messages:
            self.of(topic).send(columns)

    def open(self, topics: Sequence[TopicName]) -> None:
        for topic in topics:
            self.of(topic)

    def of(self, topic: TopicName) -> FakeWriter:
        self.topics[topic] = None
        self._calls.append(("of", topic.local))
        return FakeWriter(self._calls)

    def close(self, topic: TopicName) -> None:
        self._calls.append(("close", topic.local))

    def finish(self) -> None:
        self._calls.append("finish")

    @property
    def sent(self) -> dict[TopicName, SentTotals]:
        place = MessageId(1, 1)
        return {topic: SentTotals(1, 10, place, place) for topic in self.topics}


class FakeWriter:
    def __init__(self, calls: list[Any]) -> None:
        self._calls = calls

    def send(self, columns: Any) -> None:
        self._calls.append(("send", columns.value.to_pylist()))


@pytest.fixture
def fakes(monkeypatch) -> Fakes:
    fakes = Fakes()
    monkeypatch.setattr(task, "shared_client", lambda options: fakes)
    monkeypatch.setattr(task, "TopicWriters", fakes.writers)
    for kind in ("TopicWriter", "SegmentWriter"):
        monkeypatch.setattr(task, kind, lambda *args, kind=kind, **given: (kind, args, given))
    monkeypatch.setattr(task, "log_guarantee", lambda *_: fakes.calls.append("log"))
    run_as(monkeypatch, None)
    return fakes


def write(batches=(), schema=ROWS, schemas=None, writes=None, **given: str):
    options = parse_sink({"service.url": "pulsar://localhost:6650", **given})
    shape = message_shape(schema, options.topic, upsert=False, values=options.values)
    return write_task(options, shape, schemas or {}, iter(batches), LOG, writes or {})


def rows(*rows: tuple[str, str]) -> pa.RecordBatch:
    values, topics = zip(*rows, strict=True)
    return pa.record_batch([pa.array(values), pa.array(topics)], names=["value", "__topic"])


def test_rows_are_sent_to_their_topics_and_reported_when_all_is_acknowledged(fakes):
    report = write([rows(("a", "t"), ("b", "u"), ("c", "t")), rows(("d", "u"))])
    assert fakes.calls == [
        *(("of", "t"), ("send", [b"a", b"c"])),
        *(("of", "u"), ("send", [b"b"])),
        *(("of", "u"), ("send", [b"d"])),
        *("finish", "close", "log"),
    ]
    assert isinstance(report, TaskReport)
    assert set(report.sent) == {T, U}
    assert report.origin is None


NOT_JOINED: dict[str, tuple[dict[str, DataType], dict[str, str | None]]] = {
    "times of delivery": ({"__deliverAt": TimestampType()}, {}),
    "delays of delivery": ({"__deliverAfter": LongType()}, {}),
    "topics of rows": ({"__topic": StringType()}, {"topic": None}),
    "values with a schema": ({}, {"valueFormat": "columns", "schemaType": "primitive"}),
    "errors for full queues": ({}, {"pulsar.producer.blockIfQueueFull": "false"}),
    "batches of one key": ({}, {"pulsar.producer.batcherBuilder": "KEY_BASED"}),
    "interceptors": ({}, {"pulsar.producer.interceptors": f"{__name__}.Interceptor"}),
    "a router": (
        {},
        {
            "pulsar.producer.messageRoutingMode": "CustomPartition",
            "pulsar.producer.messageRouter": f"{__name__}.route",
        },
    ),
}


@pytest.mark.parametrize("case", [None, *NOT_JOINED])
def test_batches_are_joined_only_where_nothing_depends_on_it(fakes, case):
    types, options = NOT_JOINED[case] if case else ({}, {})
    schema, columns = StructType().add("value", StringType()), {}
    for name, kind in types.items():
        schema.add(name, kind)
        columns[name] = pa.array(["t"]) if name == "__topic" else pa.nulls(1, pa.int64())
    batches = [pa.record_batch({"value": pa.array([value]), **columns}) for value in ("a", "b", "c")]
    given = {name: value for name, value in {"topic": "t", **options}.items() if value is not None}
    schemas = {T: VersionedSchema(0, Schema(SchemaType.STRING))} if "valueFormat" in options else None
    write(batches, schema, schemas, **given)
    sent = [call for call in fakes.calls if call[0] == "send"]
    after = [[b"b"], [b"c"]] if case else [[b"b", b"c"]]
    assert sent == [("send", values) for values in [[b"a"], *after]]


def test_a_topic_of_the_options_allows_joining_whatever_topics_rows_name(fakes):
    write([rows(("a", "u")), rows(("b", "v")), rows(("c", "w"))], topic="t")
    assert ("send", [b"b", b"c"]) in fakes.calls


def test_a_task_says_what_it_has_written(fakes, caplog):
    with caplog.at_level(logging.INFO):
        write([rows(("a", "t"), ("b", "u"))])
    line = r"2 messages \(20 bytes\) are stored in 2 topic partitions after \d+\.\d{3} s"
    assert [bool(re.fullmatch(line, found)) for found in caplog.messages] == [True]


def test_rows_are_written_by_the_schemas_of_their_topics(fakes, monkeypatch):
    """The driver has chosen one of them; the task chooses the other one, once."""
    asked = []
    given, texts = (VersionedSchema(0, Schema(kind)) for kind in (SchemaType.NONE, SchemaType.STRING))

    def choose(client, topic, rows, latest, **more):
        asked.append(topic)
        return texts

    monkeypatch.setattr(topic_encoders, "schema_of_rows", choose)
    batches = [rows(("a", "t"), ("b", "u")), rows(("c", "u"))]
    write(batches, schemas={T: given}, valueFormat="columns", schemaType="primitive")
    sent = [call for call in fakes.calls if call[0] == "send"]
    assert sent == [("send", [b"a"]), ("send", [b"b"]), ("send", [b"c"])]
    schema_of = fakes.given["schema_of"]
    assert (schema_of(T), schema_of(U)) == (given, texts)
    assert asked == [U]
    write([rows(("a", "t"))])
    assert fakes.given["schema_of"] is None


def test_bytes_for_a_topic_of_records_are_warned_of_once(fakes, monkeypatch, caplog):
    """A task looks at its first topic; the schemas of topics are requested once a minute."""
    asked, said = [], []
    kinds = {T: SchemaType.STRING, U: SchemaType.JSON, TopicName.parse("v"): SchemaType.AVRO}

    def latest(topic):
        asked.append(topic)
        return VersionedSchema(0, Schema(kinds[topic])) if topic in kinds else None

    fakes.latest = latest
    monkeypatch.setattr(
        topic_encoders, "is_first_to_say", lambda text: text not in said and not said.append(text)
    )
    for time in (60, 119, 120):
        monkeypatch.setattr(topic_encoders, "now", lambda time=time: time)
        for name in ("t", "none", "u"):
            write([rows(("a", name))])
    assert [topic.local for topic in asked] == 2 * ["t", "none", "u"]
    assert caplog.messages == [
        f"{U} has a schema (JSON), but rows are written as bytes, without a version: readers by the "
        "schema fail on them. Set the option valueFormat"
    ]
    caplog.clear()
    said.clear()
    asked.clear()
    write([rows(("a", "u"), ("b", "v"), ("c", "t"))])
    assert len(caplog.messages) == 1
    assert asked == []
    caplog.clear()
    texts = VersionedSchema(0, Schema(SchemaType.STRING))
    write(
        [rows(("a", "v"))],
        schemas={TopicName.parse("v"): texts},
        valueFormat="columns",
        schemaType="primitive",
    )
    assert caplog.messages == []


def test_a_task_that_cannot_ask_for_schemas_has_written_all_the_same(fakes, caplog):
    def refuse(topic):
        raise AuthError("no permission", topic=str(topic))

    fakes.latest = refuse
    with caplog.at_level(logging.INFO):
        write([rows(("a", "t"))])
    assert "no broker says whether the topic has a schema: [PULSAR_AUTH] no permission" in caplog.text


@pytest.mark.parametrize(
    ("delivery", "batch", "attempt", "stored", "version"),
    [
        ("effectively-once", 5, 0, 7, 7),
        ("effectively-once", 6, 0, 7, 7),
        ("effectively-once", 6, 1, 7, 7),
        ("effectively-once", 6, 1, None, 9),
        ("at-least-once", 5, 0, 7, 9),
    ],
)
def test_rows_of_a_replay_are_written_by_the_version_of_those_that_are_stored(
    fakes, monkeypatch, delivery, batch, attempt, stored, version
):
    """What is stored decides, not what Spark tells."""
    run_as(monkeypatch, of_micro_batch(5))
    write()
    schema = Schema(SchemaType.STRING)
    monkeypatch.setattr(DedupTask, "stored_version", lambda self, topic: stored)
    run_as(monkeypatch, of_micro_batch(batch, attempt=attempt))
    fakes.at = lambda topic, version, load: schema
    pinned = {T: VersionedSchema(9, schema)}
    write(
        [rows(("a", "t"))], schemas=pinned, valueFormat="columns", schemaType="primitive", delivery=delivery
    )
    assert fakes.given["schema_of"](T).version == version


def test_a_task_says_who_it_is_and_what_earlier_runs_have_stored(fakes, monkeypatch):
    replays = {T: Replay(1, 2, is_again=True)}
    monkeypatch.setattr(DedupTask, "replays", property(lambda self: replays))
    run_as(monkeypatch, of_micro_batch(5, task=3))
    report = write([rows(("a", "t"))])
    dedup = fakes.given["dedup"]
    assert report.origin == dedup.origin
    assert dedup.origin == Origin(5, 3, 0, run=zlib.crc32(b"run") >> 1)
    assert report.replays == replays
    assert len(pickle.dumps(report)) < 1000


def test_the_driver_is_told_of_a_checkpoint_that_was_set_back(fakes, monkeypatch):
    run_as(monkeypatch, of_micro_batch(5))

    def find(self: FakeWriter, columns: Any) -> None:
        fakes.given["dedup"].record_late(T)

    monkeypatch.setattr(FakeWriter, "send", find)
    assert "micro-batch 5 is written after a later one" in write([rows(("a", "t"))]).warning


def test_each_write_of_a_micro_batch_has_a_number(fakes, monkeypatch):
    """A function of foreachBatch may write several times to a topic."""
    run_as(monkeypatch, of_micro_batch(5))
    given = {"query": 2, "other": 7}
    counted = {query: json.dumps(["run", 5, {str(T): count}, 5]) for query, count in given.items()}
    for topic, number in (("t", 2), ("u", 0)):
        report = write([rows(("a", topic))], writes=counted, topic=topic)
        assert report.origin == fakes.given["dedup"].origin
        assert report.origin.write == number


def test_the_driver_is_told_of_which_micro_batch_the_rows_are(fakes, monkeypatch):
    run_as(monkeypatch, of_micro_batch(5))
    assert write([rows(("a", "t"))]).micro_batch == ("query", "run", 5)
    assert write([rows(("a", "t"))], delivery="at-least-once").micro_batch is None
    monkeypatch.setattr(task, "write_in_transaction", lambda *_: TaskReport({}))
    assert write(delivery="transactional").micro_batch == ("query", "run", 5)
    run_as(monkeypatch, FakeTask())
    assert write([rows(("a", "t"))]).micro_batch is None


def test_the_driver_is_told_what_is_not_promised(fakes, monkeypatch):
    """Where the broker does not deduplicate, rows may be duplicated."""
    monkeypatch.setattr(task, "log_guarantee", lambda *given: given)
    run_as(monkeypatch, of_micro_batch(5))
    report = write(delivery="effectively-once")
    assert report.query == "query"
    options, *given = report.warning
    assert options.delivery is Delivery.EFFECTIVELY_ONCE
    assert given == [micro_batch(), fakes.given["dedup"]]


def test_a_task_writes_nothing_where_effectively_once_is_not_possible(fakes, monkeypatch):
    """The driver then fails the write: tests/spark/sink/test_driver.py."""
    run_as(monkeypatch, FakeTask())
    assert write([rows(("a", "t"))], delivery="effectively-once") == TaskReport({})
    assert not fakes.calls


def test_a_replay_without_rows_looks_at_the_topic_all_the_same(fakes, monkeypatch):
    """An earlier run may have had rows."""
    run_as(monkeypatch, of_micro_batch(5))
    report = write(schema=StructType().add("value", StringType()), topic="t")
    assert fakes.calls == [("of", "t"), "finish", "close", "log"]
    assert report.replays == {}


def test_rows_with_ids_of_their_own_are_not_deduplicated_by_the_task(fakes, monkeypatch):
    run_as(monkeypatch, of_micro_batch(5))
    schema = StructType().add("value", StringType()).add("__sequenceId", LongType())
    write(schema=schema, topic="t")
    assert fakes.given["dedup"] is None
    with pytest.raises(OptionError, match="cannot be used with a column __sequenceId"):
        write(schema=schema, topic="t", delivery="effectively-once")


@pytest.mark.parametrize("delivery", ["effectively-once", "at-least-once"])
def test_where_rows_without_keys_begin_depends_on_the_micro_batch_and_the_task(fakes, monkeypatch, delivery):
    run_as(monkeypatch, of_micro_batch(5, task=3))
    write(delivery=delivery)
    assert fakes.given["place"] == TaskPlace(5, 3)
    if fakes.given["dedup"] is not None:
        assert fakes.given["dedup"].place == TaskPlace(5, 3)
    run_as(monkeypatch, FakeTask(3))
    write()
    assert fakes.given["place"] is None


def test_a_producers_name_is_made_the_tasks_own(fakes, monkeypatch):
    named = {"pulsar.producer.producerName": "mine"}
    write(**named)
    assert fakes.producer.name == "mine"
    run_as(monkeypatch, FakeTask(7))
    write(**named)
    assert fakes.producer.name == "mine-7"
    write()
    assert fakes.producer.name is None
    assert fakes.given["in_parallel"] > 1


def route(keys: pa.BinaryArray, partitions: int) -> list[int]:
    return [0] * len(keys)


class Interceptor(ProducerInterceptor):
    pass


class NoInterceptor:
    def __init__(self):
        raise AssertionError("it was called")


def test_the_users_code_is_found(fakes):
    prefix = "pulsar.producer."
    write(
        **{
            prefix + "messageRoutingMode": "CustomPartition",
            prefix + "messageRouter": f"{__name__}.route",
            prefix + "interceptors": f"{__name__}.Interceptor",
        }
    )
    code = fakes.given["code"]
    assert fakes.given["memory"].part == fakes.producer.memory_limit
    assert code.router is route
    assert fakes.given["in_parallel"] == 1
    assert [type(each) for each in code.interceptors] == [Interceptor]
    assert code.encryptor is None
    with pytest.raises(OptionError, match="no such name"):
        write(**{prefix + "interceptors": f"{__name__}.Missing"})


@pytest.mark.parametrize(
    "given",
    [
        {"interceptors": f"{__name__}.NoInterceptor"},
        {"interceptors": "os.getpid"},
        {"messageRoutingMode": "CustomPartition", "messageRouter": "os.system"},
    ],
)
def test_what_is_not_what_the_option_asks_for_is_not_called(fakes, given):
    with pytest.raises(OptionError, match="which is not a"):
        write(**{f"pulsar.producer.{name}": text for name, text in given.items()})


def test_payloads_are_encrypted_with_the_keys_of_the_options(fakes, tmp_path):
    (tmp_path / "own.public.pem").touch()
    keys = {"pulsar.producer.encryptionKeys": "own", "pulsar.producer.cryptoKeyReader": str(tmp_path)}
    write(**keys)
    assert fakes.given["code"].encryptor is not None


def test_transactional_rows_are_written_in_one(fakes, monkeypatch):
    transaction = Transaction(TxnId(0, 1), fakes)
    seen: list[Any] = []

    def in_transaction(client, log, ttl, batches, write):
        seen.extend((client, log, ttl))
        return write(batches, transaction)

    monkeypatch.setattr(task, "write_in_transaction", in_transaction)
    write([rows(("a", "t"))], delivery="transactional", transactionTimeout="5m")
    assert seen == [fakes, LOG, 300.0]
    assert fakes.given["transaction"] is transaction
    assert fakes.given["dedup"] is None
    assert fakes.producer.name is None
    write([rows(("a", "t"))])
    assert fakes.given["transaction"] is None


def test_in_a_transaction_nobody_else_has_the_producers_name(fakes, monkeypatch):
    """Another query, and another attempt of the task, would have rows of this one dropped as duplicates."""
    names = []
    left = iter([TxnId(0, 1), TxnId(0, 2), TxnId(1, 1), TxnId(1, 2)])

    def in_transaction(client, log, ttl, batches, write):
        return write(batches, Transaction(next(left), fakes))

    monkeypatch.setattr(task, "write_in_transaction", in_transaction)
    for number in (3, 3, 3, 4):
        run_as(monkeypatch, FakeTask(number))
        write([rows(("a", "t"))], delivery="transactional", **{"pulsar.producer.producerName": "mine"})
        names.append(fakes.producer.name)
    assert names == ["mine-3-0-1", "mine-3-0-2", "mine-3-1-1", "mine-4-1-2"]


def test_options_are_not_changed(fakes, monkeypatch):
    run_as(monkeypatch, FakeTask(7))
    options = parse_sink({"service.url": "pulsar://localhost:6650", "pulsar.producer.producerName": "mine"})
    write_task(options, message_shape(ROWS, None, upsert=False), {}, iter([]), None, {})
    assert replace(fakes.producer, name="mine") == options.producer


def test_retries_are_those_of_the_task_alone(fakes, monkeypatch):
    """A worker counts those of all tasks that it has run."""
    counts = iter([40, 43])
    monkeypatch.setattr(task, "retry_count", lambda: next(counts))
    assert write([rows(("a", "t"))]).retries == 3
