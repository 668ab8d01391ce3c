"""Producers with a schema: what they register, and the version that their entries say."""

from collections import Counter
from contextlib import closing

import pyarrow as pa
import pytest

from pulsar_spark.client import (
    DedupTask,
    Encryptor,
    Origin,
    ProducerCryptoFailureAction,
    TopicWriter,
    UserCode,
)
from pulsar_spark.client.writing.dedup_producer import DedupProducer
from pulsar_spark.errors import SchemaError
from pulsar_spark.ids import TopicName
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.wire_values import to_wire_schema
from tests.client.clients import TOPIC, client_of, columns, numbered, producing
from tests.client.writing.producers import open_producer, send, send_batch, store
from tests.client.writing.test_dedup import NoKeys
from tests.client.writing.told import new_origin, told
from tests.fake_broker import FakeBroker, cut, lose_answer, pass_on, refuses
from tests.fake_clients import Type
from tests.fake_topics import split_section
from tests.writes import send_all

A = Schema(SchemaType.AVRO, b'"int"', {"made": "by"}, "a")
B = Schema(SchemaType.AVRO, b'"long"')
C = Schema(SchemaType.STRING)

REFUSAL = (
    "org.apache.pulsar.broker.service.schema.exceptions.IncompatibleSchemaException: Error during schema "
    "compatibility check with strategy FULL: org.apache.avro.SchemaValidationException: Unable to read schema"
)


def known(broker, *schemas, topic=TOPIC):
    """Register schemas that others have brought."""
    with broker.changed:
        for schema in schemas:
            broker.schemas.register(str(topic), to_wire_schema(schema))


def versions(topic):
    """The version of each entry's schema; None where it says none."""
    found = [split_section(entry.section)[0].schema_version for entry in topic.entries]
    assert {len(each) for each in found} <= {0, 8}
    return [int.from_bytes(each, "big") if each else None for each in found]


# ---- what is registered, and what entries say


@pytest.mark.parametrize("others", [[], [B, C]])
def test_all_kinds_of_entries_say_the_version(broker, client, topic, others):
    known(broker, *others)
    producer = open_producer(client, schema=A)
    assert producer.schema_version == len(others)
    send(producer, numbered(2))
    send_batch(producer, numbered(3))
    store(producer, closes=True)
    assert versions(topic) == [len(others)] * 3
    (asked,) = broker.seen(Type.PRODUCER)
    assert asked.schema == to_wire_schema(A)
    assert broker.schemas.latest(str(TOPIC)) == (len(others), to_wire_schema(A))


def test_without_a_schema_nothing_is_said_of_one(broker, client, topic):
    known(broker, A)
    producer = open_producer(client)
    assert producer.schema_version is None
    send(producer, numbered(1))
    send_batch(producer, numbered(2))
    store(producer, closes=True)
    assert versions(topic) == [None, None]
    (asked,) = broker.seen(Type.PRODUCER)
    assert not asked.HasField("schema")


def test_a_schema_that_is_known_keeps_its_version(broker, client, topic):
    known(broker, A, B)
    producer = open_producer(client, schema=A)
    store(producer, numbered(1), closes=True)
    assert versions(topic) == [0], "not the topic's latest: the value was not encoded by that"


@pytest.mark.parametrize("encryptor", [None, Encryptor(NoKeys(), ["a"], ProducerCryptoFailureAction.SEND)])
def test_all_chunks_say_the_version(encryptor):
    with FakeBroker(max_message_size=10_000) as broker, client_of(broker) as client:
        known(broker, B)
        options = producing(schema=A, batching=False, chunking=True)
        with TopicWriter(client, TOPIC, options, code=UserCode(encryptor=encryptor)) as writer:
            send_all(writer, columns([b"x" * 25_000, b"y"]))
        stored = broker.topics[str(TOPIC)]
        assert len(stored.entries) > 3
        assert set(versions(stored)) == {1}


def test_writers_register_it_for_each_partition(broker, client):
    broker.create("parted", 3)
    with TopicWriter(client, TopicName.parse("parted"), producing(schema=A)) as writer:
        send_all(writer, columns(numbered(9), partition=pa.array([0, 1, 2] * 3, pa.int32())))
    assert [asked.schema for asked in broker.seen(Type.PRODUCER)] == [to_wire_schema(A)] * 3
    assert {version for topic in broker.topics.values() for version in versions(topic)} == {0}


# ---- lost connections


@pytest.mark.parametrize("chunked", [False, True])
def test_what_is_stored_is_found_to_be_what_was_sent(chunked):
    """Their versions are compared, too: they are what was sent before the connection was lost."""
    value = b"x" * (25_000 if chunked else 1)
    with FakeBroker(deduplicates=True, max_message_size=10_000) as broker, client_of(broker) as client:
        topic = broker.create(TOPIC)
        broker.script(Type.SEND, [*[pass_on] * 2 * chunked, lose_answer])
        producer = open_producer(client, schema=A, name="me", batching=False, chunking=True)
        send(producer, [value])
        broker.wait_for(lambda: len(topic.entries) == 1 + 2 * chunked)
        with broker.changed:
            broker.schemas.delete(str(TOPIC))
        producer.flush()
        store(producer, [b"y"], closes=True)
        *first, last = versions(topic)  # chunks before the last come again: readers drop them
        assert (set(first), last) == ({0}, 2)
        assert topic.stored_ids["me"] == 1
        assert len(broker.seen(Type.SUBSCRIBE)) > 0, "it was looked for"


def test_under_another_name_the_schema_is_registered_again(broker, client, topic):
    producer = open_producer(client, schema=A, name="one")
    producer.reopen("two", 0)
    store(producer, numbered(1), closes=True)
    assert [asked.schema for asked in broker.seen(Type.PRODUCER)] == [to_wire_schema(A)] * 2
    assert versions(topic) == [0]


# ---- schemas that the broker refuses


def test_a_refusal_says_the_strategy_and_is_not_tried_again(broker, client, topic):
    broker.script(Type.PRODUCER, [refuses(pb.IncompatibleSchema, REFUSAL)] * 9)
    with pytest.raises(SchemaError) as caught:
        open_producer(client, schema=A)
    assert caught.value.what == (
        "the broker refused the request: Error during schema compatibility check with strategy FULL: "
        "Unable to read schema (ServerError 18)"
    )
    assert caught.value.topic == str(TOPIC)
    assert len(broker.seen(Type.PRODUCER)) == 1
    with (
        TopicWriter(client, TOPIC, producing(schema=A)) as writer,
        pytest.raises(SchemaError, match="strategy FULL"),
    ):
        writer.send(columns(numbered(1)))
    assert broker.open_producers == []


def test_a_refusal_after_the_connection_was_lost_fails_what_is_pending(broker, client, topic):
    broker.script(Type.SEND, [cut])
    broker.script(Type.PRODUCER, [pass_on] + [refuses(pb.IncompatibleSchema, REFUSAL)] * 9)
    producer = open_producer(client, schema=A)
    send(producer, numbered(2))
    with pytest.raises(SchemaError, match="strategy FULL"):
        producer.flush()
    assert len(broker.seen(Type.PRODUCER)) == 2
    producer.close()


# ---- rows that are stored once


def run(client, values, **options):
    """One run of a task; gives the task and how many messages may be duplicated."""
    task = DedupTask(client, "query-0", new_origin(0, 0, 0), b"secret", required=True)
    with closing(task), TopicWriter(client, TOPIC, producing(**options), dedup=task) as writer:
        send_all(writer, columns(values))
        task.finish()
        return task, told((task, writer.sent))


@pytest.mark.parametrize("batching", [True, False])
def test_rows_of_the_same_version_are_left_out(batching):
    """Also where the topic has a newer one by now."""
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        topic = broker.create(TOPIC)
        run(client, numbered(4), schema=A, batching=batching)
        known(broker, B)
        for _ in range(2):
            task, twice = run(client, numbered(6), schema=A, batching=batching)
            assert twice == 0
            assert task.stored_version(TOPIC) == 0
        assert topic.values == numbered(6)
        assert set(versions(topic)) == {0}


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("schema", [B, None])
def test_the_same_bytes_by_another_version_are_other_rows(batching, schema):
    """By another schema they are other values. It is told, and each version is found again."""
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        topic = broker.create(TOPIC)
        run(client, numbered(4), schema=A, batching=batching)
        for _ in range(2):
            assert run(client, numbered(4), schema=schema, batching=batching)[1] == 4
            assert Counter(topic.values) == Counter(numbered(4) * 2)


def test_all_producers_of_a_task_name_the_schema():
    """Where the namespace enforces schemas it takes no others: also not to find out if it deduplicates."""
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        broker.create(TOPIC)
        task, _ = run(client, numbered(4), schema=A)
        assert task.deduplicates()
        other = DedupTask(client, "query-1", Origin(0, 1, 0), b"secret", required=False)
        with closing(other), TopicWriter(client, TOPIC, producing(schema=A), dedup=other) as writer:
            send_all(writer, columns(numbered(1)))
        assert other.deduplicates()
        asked = broker.seen(Type.PRODUCER)
        assert len(asked) == 4
        assert {each.schema.schema_data for each in asked} == {A.data}


@pytest.mark.parametrize("order", [(1, 2), (2, 1), (0, 2, 1)])
def test_the_version_is_that_of_the_first_partition_with_rows(order):
    """Whichever is opened first: all partitions are written by one version."""
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        broker.create("parted", 3)
        topic = TopicName.parse("parted")

        def open_all(task, partitions, schema=None):
            for number in partitions:
                name = topic.of_partition(number)
                options, opening = producing(schema=schema), client.operation()
                producer = DedupProducer(task, topic, name, number, options, 3, opening)
                producer.read_stored()
                yield producer

        for partition, schema in ((2, A), (1, B)):
            known(broker, A, B, topic=topic.of_partition(partition))
            task = DedupTask(client, "query-0", new_origin(0, 0, 0), b"secret", required=False)
            with closing(task):
                for producer in open_all(task, [partition], schema):
                    store(producer, numbered(1), closes=True)
        task = DedupTask(client, "query-0", new_origin(0, 0, 0), b"secret", required=False)
        with closing(task):
            for producer in open_all(task, order):
                producer.close()
            assert task.stored_version(topic) == 1
            assert task.stored_version(TOPIC) is None
