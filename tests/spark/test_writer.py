"""What Spark calls of the sink: what is checked where, and what is passed on."""

from __future__ import annotations

import logging
import pickle
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from pulsar_spark.client import PartKind, PartType, RowType, Schema, VersionedSchema
from pulsar_spark.errors import ConnectError, OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.schema import SchemaType
from pulsar_spark.spark import writer
from pulsar_spark.spark.options.parse import parse_sink
from pulsar_spark.spark.sink.commit_log import QueryLog
from pulsar_spark.spark.sink.micro_batch import count_write, read_write_numbers
from pulsar_spark.spark.sink.report import TaskReport
from pulsar_spark.spark.writer import PulsarStreamWriter, PulsarWriter
from tests.spark.sink.fake_task import of_micro_batch, run_as

GIVEN = {"service.url": "pulsar://localhost:6650", "topic": "a/b/t"}
VALUE = StructType().add("value", StringType())
REPORT = TaskReport({})
LOG = TopicName.parse("a/b/spark-transactions-query")
TRANSACTIONAL = {"delivery": "transactional"}


@pytest.fixture
def calls(monkeypatch) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []

    def write_task(options, shape, schemas, batches, log, writes):
        calls.append(("write", shape.value, schemas, list(batches), log, writes))
        return REPORT

    monkeypatch.setattr(writer, "check_reachable", lambda options: calls.append(("check",)))
    monkeypatch.setattr(writer, "write_task", write_task)
    monkeypatch.setattr(writer, "finish_batch", lambda options, *args: calls.append(("finish", *args)))
    monkeypatch.setattr(writer, "fail_batch", lambda options, *args: calls.append(("fail", *args)))
    run_as(monkeypatch, None)
    return calls


def test_a_batch_writer_finds_a_bad_address_before_any_task_runs(calls):
    made = PulsarWriter(parse_sink(GIVEN), VALUE, overwrite=False)
    assert calls == [("check",)]
    assert made.write(iter([])) is REPORT
    made.commit([REPORT, None])
    made.abort([None])
    assert calls[1:] == [
        ("write", "value", {}, [], None, {}),
        ("finish", [REPORT, None], None),
        ("fail", [None], None),
    ]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("kind", [PulsarWriter, PulsarStreamWriter])
def test_tasks_know_what_the_driver_had_counted_when_the_write_began(calls, monkeypatch, kind):
    """Tasks run on other hosts. A task that is tried again is of the same write."""
    count_write("query", "run", 7, TopicName.parse("a/b/t"))
    before = read_write_numbers()
    options = parse_sink(GIVEN)
    is_stream = kind is PulsarStreamWriter
    made = PulsarStreamWriter(options, VALUE) if is_stream else PulsarWriter(options, VALUE, overwrite=False)
    count_write("query", "run", 7, TopicName.parse("a/b/t"))
    pickled = pickle.dumps(made)
    monkeypatch.setattr(writer, "read_write_numbers", None)
    for _ in range(2):
        pickle.loads(pickled).write(iter([]))
    assert [call[-1] for call in calls if call[0] == "write"] == [before] * 2
    assert before


@pytest.mark.parametrize("call", ["write", "commit", "abort"])
@pytest.mark.parametrize("kind", [PulsarWriter, PulsarStreamWriter])
def test_the_log_level_of_a_query_holds_in_each_process(calls, call, kind):
    """Making the writer sets it, too, so it is taken back before the call."""
    logger = logging.getLogger("pulsar_spark")
    is_stream = kind is PulsarStreamWriter
    options = parse_sink({**GIVEN, "logLevel": "INFO"})
    made = PulsarStreamWriter(options, VALUE) if is_stream else PulsarWriter(options, VALUE, overwrite=False)
    assert logger.level == logging.INFO
    try:
        logger.setLevel(logging.NOTSET)
        getattr(made, call)([], *([7] if is_stream and call != "write" else []))
        assert logger.level == logging.INFO
    finally:
        logger.setLevel(logging.NOTSET)


def test_the_driver_pins_the_schemas_that_tasks_write_by(calls, monkeypatch):
    """Before any row; a batch writer has then found that there is a broker."""
    schemas = {TopicName.parse("a/b/t"): VersionedSchema(3, Schema(SchemaType.STRING))}

    def pinned(options, shape, latest):
        calls.append(("pin", shape.value.type.value.kind, latest))
        return schemas

    monkeypatch.setattr(writer, "with_schemas", lambda options, client: (options, "latest"))
    monkeypatch.setattr(writer, "pinned_schemas", pinned)
    options = parse_sink(GIVEN | {"valueFormat": "columns", "schemaType": "primitive"})
    made = PulsarWriter(options, VALUE, overwrite=False)
    assert calls == [("check",), ("pin", PartKind.PRIMITIVE, "latest")]
    made.write(iter([]))
    assert calls[-1][2] == schemas
    calls.clear()
    run_as(monkeypatch, of_micro_batch(7))
    streaming = PulsarStreamWriter(options, VALUE)
    assert calls == [("pin", PartKind.PRIMITIVE, "latest")]
    streaming.write(iter([]))
    assert calls[-1][2] == schemas


def test_the_format_of_the_topic_is_known_before_the_rows_are_looked_at(calls, monkeypatch):
    """A batch asks with a client that gives up soon; a stream with one that waits for a broker's restart."""
    options = parse_sink(GIVEN | {"valueFormat": "columns"})

    def found(given, client):
        calls.append(("kind", given.values.kind, client.options.operation_timeout))
        return parse_sink(GIVEN | {"valueFormat": "columns", "schemaType": "primitive"}), None

    monkeypatch.setattr(writer, "with_schemas", found)
    monkeypatch.setattr(writer, "pinned_schemas", lambda options, shape, _: calls.append(shape.value.type))
    text = RowType(PartType(PartKind.PRIMITIVE, pa.string()))
    PulsarWriter(options, VALUE, overwrite=False)
    assert calls == [("kind", PartKind.AVRO, 4.0), ("check",), text]
    calls.clear()
    PulsarStreamWriter(options, VALUE)
    assert calls == [("kind", PartKind.AVRO, 30.0), text]


def test_a_batch_writer_that_reaches_no_broker_is_not_made(monkeypatch):
    def fail(options):
        raise ConnectError("no broker")

    monkeypatch.setattr(writer, "check_reachable", fail)
    with pytest.raises(ConnectError):
        PulsarWriter(parse_sink(GIVEN), VALUE, overwrite=False)


def test_a_stream_writer_is_made_without_a_broker(calls):
    made = PulsarStreamWriter(parse_sink(GIVEN), VALUE)
    made.commit([REPORT], 3)
    made.abort([None], 4)
    assert calls == [("finish", [REPORT], 3), ("fail", [None], 4)]


# What Spark says of the task, whether the broker is looked for first, the log.
TASKS = {
    "the first micro-batch": ({}, of_micro_batch(0), True, None),
    "a later one": ({}, of_micro_batch(7), False, None),
    "one in transactions": (TRANSACTIONAL, of_micro_batch(7), False, QueryLog(LOG, 7, may_be_replay=True)),
    "one that Spark does not name": (TRANSACTIONAL, None, True, None),
}


@pytest.mark.parametrize(("given", "task", "is_checked", "log"), TASKS.values(), ids=TASKS.keys())
def test_only_the_first_micro_batch_finds_a_bad_address_soon(
    calls, monkeypatch, given, task, is_checked, log
):
    run_as(monkeypatch, task)
    assert PulsarStreamWriter(parse_sink(GIVEN | given), VALUE).write(iter([])) is REPORT
    assert calls == [*([("check",)] if is_checked else []), ("write", "value", {}, [], log, {})]


def test_a_function_of_the_users_that_is_not_there_is_an_error_of_the_driver(calls):
    encrypted = {"pulsar.producer.encryptionKeys": "k", "pulsar.producer.cryptoKeyReader": "/no_such.name"}
    router = {"messageRoutingMode": "CustomPartition", "messageRouter": "no_such.name"}
    for given in (
        {"onBatchWritten": "no_such.name"},
        {"pulsar.producer.interceptors": "pulsar_spark.ProducerInterceptor,no_such.name"},
        {f"pulsar.producer.{name}": text for name, text in router.items()},
        encrypted,
    ):
        options = parse_sink(GIVEN | given)
        for make in (
            partial(PulsarWriter, options, VALUE, overwrite=False),
            partial(PulsarStreamWriter, options, VALUE),
        ):
            with pytest.raises(OptionError, match=r" is /?no_such\.name, and there is no such"):
                make()
    assert not calls


def test_ids_of_the_rows_and_effectively_once_are_an_error_of_the_driver(calls):
    options = parse_sink(GIVEN | {"delivery": "effectively-once"})
    schema = StructType().add("value", StringType()).add("__sequenceId", LongType())
    with pytest.raises(OptionError, match="cannot be used with a column __sequenceId"):
        PulsarWriter(options, schema, overwrite=False)
    assert not calls


def test_a_topic_cannot_be_overwritten(calls):
    with pytest.raises(OptionError, match="append"):
        PulsarWriter(parse_sink(GIVEN), VALUE, overwrite=True)
    assert not calls


def test_ignored_columns_are_warned_of_once(calls, caplog):
    schema = (
        StructType().add("value", StringType()).add("__messageId", StringType()).add("__index", StringType())
    )
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            PulsarStreamWriter(parse_sink(GIVEN), schema)
    assert caplog.messages == ["columns that only the source has are not written: __messageId, __index"]
