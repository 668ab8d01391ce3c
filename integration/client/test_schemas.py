"""Schemas on the real broker: what it says of topics and takes of us, and what the C++ client reads by it."""

import io
import json
from contextlib import closing, suppress
from typing import Any

import fastavro
import pulsar
import pyarrow as pa
import pytest
from pulsar.schema import AvroSchema, StringSchema

from integration.broker.waiting import promptly, wait_until
from integration.chaos.messages import read_partition
from integration.helpers.payloads import register_pair
from integration.helpers.task_runs import task_of
from pulsar_spark.client import (
    Calls,
    Consumer,
    InitialPosition,
    MessageColumns,
    PlanningClient,
    Producer,
    ProducerOptions,
    SubscriptionOptions,
    TopicWriter,
    register_schema,
)
from pulsar_spark.errors import SchemaError
from pulsar_spark.ids import TopicName
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.spark.plan.subscription import Subscription
from pulsar_spark.wire.columns.entry_messages import encode_singles
from pulsar_spark.wire.wire_values import from_wire_version
from tests.writes import send_all, write_all

pytestmark = pytest.mark.usefixtures("leaves_nothing")

Definition = dict[str, Any]


def record(*fields):
    """The definition of a record of a number, and of texts that may be null."""
    texts = [{"name": name, "type": ["null", "string"], "default": None} for name in fields]
    return {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}, *texts]}


def avro(definition, **properties):
    return Schema(SchemaType.AVRO, json.dumps(definition).encode(), properties)


V0, V1, V2 = record(), record("a"), record("a", "b")
# New fields need a default.
REFUSED = {**V0, "fields": [*V0["fields"], {"name": "a", "type": "string"}]}
STRING = Schema(SchemaType.STRING)


def encoded(definition, numbers):
    """Rows as values of a schema."""
    values = []
    for number in numbers:
        buffer = io.BytesIO()
        row = {field["name"]: f"{field['name']}{number}" for field in definition["fields"][1:]}
        fastavro.schemaless_writer(buffer, definition, {"n": number, **row})
        values.append(buffer.getvalue())
    return MessageColumns(value=pa.array(values, pa.binary()), key=pa.nulls(len(values), pa.binary()))


def decoded(definition, numbers, reader):
    """What a reader makes of those rows."""
    names = {field["name"] for field in definition["fields"][1:]}
    return [
        {
            "n": n,
            **{f["name"]: f"{f['name']}{n}" if f["name"] in names else None for f in reader["fields"][1:]},
        }
        for n in numbers
    ]


def write(client, topic, definition, numbers, **options):
    how = ProducerOptions(schema=avro(definition), **options)
    write_all(TopicWriter(client, TopicName.parse(topic), how), encoded(definition, numbers))


def versions(client, topic):
    """The version that each entry says; None where it says none."""
    entries = read_partition(client, TopicName.parse(topic))
    return [from_wire_version(entry.metadata.schema_version) for entry in entries]


def read_by(peer, topic, definition, count):
    """Read a topic with the C++ client and its decoder, which asks for the schema of each version."""
    schema = AvroSchema(None, schema_definition=definition)
    options = {"initial_position": pulsar.InitialPosition.Earliest, "schema": schema}
    with closing(peer.client.subscribe(topic, "typed", **options)) as consumer:
        return [consumer.receive(120_000).value() for _ in range(count)]


def delete_schema(admin, topic):
    admin.request("DELETE", f"schemas/{topic.removeprefix('persistent://')}/schema")


@pytest.fixture
def enforcing_topic(admin, namespace, own_topic):
    """A topic in a namespace that deduplicates, and takes no producers without its topics' schemas."""
    admin.set_deduplication(namespace, True)
    admin.enforce_schemas(namespace)
    return own_topic


# ---- what the broker says of topics


def test_a_topic_that_does_not_exist_and_one_without_a_schema(client, admin, topic):
    name = TopicName.parse(topic)
    for is_there in (False, True):
        if is_there:
            admin.create_topic(topic)
        assert client.schemas.latest(name) is None
        assert client.schemas.at_all(name, range(100)) == {}
        assert (topic in admin.topics()) == is_there
    missing = TopicName.parse("persistent://public/missing/topic")
    assert client.schemas.latest(missing) is None


def test_many_versions(client, topic):
    name = TopicName.parse(topic)
    definitions = [record(*(f"f{number}" for number in range(count))) for count in range(30)]
    schemas = [avro(definition, made="by a test") for definition in definitions]
    assert [register_schema(client, name, schema) for schema in schemas] == list(range(30))
    assert register_schema(client, name, schemas[7]) == 7
    latest = client.schemas.latest(name)
    assert latest is not None
    assert (latest.version, latest.schema.data) == (29, schemas[29].data)
    found = client.schemas.at_all(name, [*range(40), 2**62])
    assert {version: schema.data for version, schema in found.items()} == {
        version: schema.data for version, schema in enumerate(schemas)
    }
    assert found[3].type is SchemaType.AVRO
    assert found[3].properties == {"made": "by a test"}


def test_a_schema_that_was_deleted(client, admin, topic):
    name = TopicName.parse(topic)
    register_schema(client, name, avro(V0))
    delete_schema(admin, topic)
    assert client.schemas.latest(name) is None
    assert client.schemas.at_all(name, range(9)) == {}
    assert register_schema(client, name, avro(V1)) == 2
    assert client.schemas.latest(name) == (2, client.schemas.at(name, 2))
    assert client.schemas.at(name, 0) is None


def test_a_topic_that_is_made_anew_counts_from_0_again(client, admin, topic):
    name = TopicName.parse(topic)
    for definition in (V0, V1):
        register_schema(client, name, avro(definition))
    assert set(client.schemas.at_all(name, range(9))) == {0, 1}
    admin.delete_topic(topic)
    assert register_schema(client, name, avro(V2)) == 0
    latest = client.schemas.latest(name)
    assert latest is not None
    assert (latest.version, latest.schema.data) == (0, avro(V2).data)
    assert client.schemas.at_all(name, range(9)) == {0: latest.schema}


def test_partitions_share_a_schema(client, admin, topic):
    admin.create_partitioned_topic(topic, 3)
    name = TopicName.parse(topic)
    assert register_schema(client, name, avro(V0)) == 0
    assert register_schema(client, name.of_partition(2), avro(V1)) == 1
    with TopicWriter(client, name, ProducerOptions(schema=avro(V1), batching=False)) as writer:
        send_all(writer, encoded(V1, range(30)))
    for number in range(3):
        partition = name.of_partition(number)
        assert client.schemas.latest(partition) == (1, client.schemas.at(partition, 1))
        assert versions(client, str(partition)) == [1] * 10


def test_primitives_have_no_data(client, topic):
    name = TopicName.parse(topic)
    assert register_schema(client, name, STRING) == 0
    found = client.schemas.at(name, 0)
    assert found is not None
    assert (found.type, found.data) == (SchemaType.STRING, b"")


# ---- what entries say


@pytest.mark.parametrize(
    "options",
    [
        {"batching_max_messages": 7},
        {"batching": False},
        {"batching": False, "chunking": True, "chunk_max_message_size": 2000},
    ],
)
def test_the_peer_reads_each_entry_by_its_own_version(client, peer, topic, options):
    wide = record("a", *(f"field_{number}" for number in range(300)))  # some 4 kB a value
    parts = [(V0, range(10)), (V1, range(10, 20)), (wide, range(20, 23)), (V0, range(30, 40))]
    for definition, numbers in parts:
        write(client, topic, definition, numbers, **options)
    found = versions(client, topic)
    assert list(dict.fromkeys(found)) == [0, 1, 2]
    assert found[-1] == 0, "values encoded by an older version say so, though there are later ones"
    expected = [row for definition, numbers in parts for row in decoded(definition, numbers, V1)]
    assert read_by(peer, topic, V1, len(expected)) == expected


def test_producers_that_are_closed_by_the_broker_go_on_with_the_version(
    client, admin, peer, plain_once_topic
):
    """An unload may lose receipts of entries that are stored; deduplication drops what is sent again."""
    register_schema(client, TopicName.parse(plain_once_topic), avro(V0))
    how = ProducerOptions(schema=avro(V1), batching_max_messages=5)
    with TopicWriter(client, TopicName.parse(plain_once_topic), how) as writer:
        for first in range(0, 100, 20):
            writer.send(encoded(V1, range(first, first + 20)))
            admin.unload(plain_once_topic)
        writer.flush()
    assert set(versions(client, plain_once_topic)) == {1}
    found = read_by(peer, plain_once_topic, V1, 100)
    assert sorted(row["n"] for row in found) == list(range(100))


def test_no_entry_is_stored_by_a_number_that_its_schema_has_lost(client, admin, topic):
    admin.create_held_topic(topic)
    producer = Producer(client, TopicName.parse(topic), ProducerOptions(schema=avro(V0)), 1)
    with closing(producer):
        producer.send_singles(encode_singles(encoded(V0, range(1))))
        producer.flush()
        delete_schema(admin, topic)
        admin.unload(topic)
        with suppress(SchemaError):  # where the row was made before the new number was known
            producer.send_singles(encode_singles(encoded(V0, range(1, 2))))
            producer.flush()
    with TopicWriter(client, TopicName.parse(topic), ProducerOptions(schema=avro(V0))) as writer:
        send_all(writer, encoded(V0, range(2, 3)))
    found = versions(client, topic)
    assert found[0] == 0
    assert set(found[1:]) == {2}


def test_without_a_schema_entries_say_no_version(client, topic):
    name = TopicName.parse(topic)
    register_schema(client, name, avro(V0))
    write_all(TopicWriter(client, name, ProducerOptions()), encoded(V0, range(3)))
    assert set(versions(client, topic)) == {None}


# ---- schemas that the broker refuses


def open_producer(client, topic, schema):
    return Producer(client, topic, ProducerOptions(schema=schema), 1)


@pytest.mark.parametrize("how", [register_schema, open_producer])
def test_a_refusal_says_the_strategy_and_the_reason(client, topic, how):
    name = TopicName.parse(topic)
    register_schema(client, name, avro(V0))
    with promptly(10.0), pytest.raises(SchemaError) as caught:
        how(client, name, avro(REFUSED))
    text = str(caught.value)
    assert text.startswith(
        "[PULSAR_SCHEMA] the broker refused the request: Error during schema compatibility check with "
    )
    assert "strategy FULL: Unable to read schema: {" in text
    assert "org.apache" not in text
    assert text.count("using schema") == 1
    assert topic in text
    with promptly(10.0), pytest.raises(SchemaError, match="exists schema type AVRO, new schema type STRING"):
        how(client, name, STRING)
    with promptly(10.0), pytest.raises(SchemaError, match="Invalid schema definition data for AVRO schema"):
        how(client, name, Schema(SchemaType.AVRO, b"no JSON"))


def test_where_schemas_are_not_updated_new_ones_are_refused(client, admin, enforcing_topic):
    name = TopicName.parse(enforcing_topic)
    register_schema(client, name, avro(V0))
    admin.request("POST", f"namespaces/{name.tenant}/{name.namespace}/isAllowAutoUpdateSchema", False)
    fields: list[str] = []

    def is_refused():
        # The topic takes the policy over later. Each schema is new: one that was taken is never refused.
        fields.append(f"f{len(fields)}")
        try:
            register_schema(client, name, avro(record(*fields)))
        except SchemaError as error:
            return "schema auto updating is disabled" in str(error)
        return False

    wait_until(is_refused)
    assert register_schema(client, name, avro(V0)) == 0


def test_the_broker_takes_both_encodings_of_keys(admin, topic):
    """As the same version: of which the first stays."""
    for encoding in ("INLINE", "SEPARATED"):
        assert register_pair(admin, topic, "AVRO", V0, V0, {}, encoding) == 0


# ---- rows that are stored once


def test_runs_store_each_row_once_where_schemas_are_enforced(client, peer, enforcing_topic):
    """All producers bring the schema: those that ask whether the broker deduplicates, too."""
    name = TopicName.parse(enforcing_topic)
    register_schema(client, name, avro(V0))
    for count in (40, 60, 60):
        with closing(task_of(client, required=True)) as task:
            how = ProducerOptions(schema=avro(V1), batching_max_messages=count // 5)
            write_all(TopicWriter(client, name, how, dedup=task), encoded(V1, range(count)))
            assert task.deduplicates()
    assert read_by(peer, enforcing_topic, V1, 60) == decoded(V1, range(60), V1)
    assert set(versions(client, enforcing_topic)) == {1}


# ---- who may come first to an empty topic


@pytest.mark.parametrize("kind", ["reader", "planner"])
@pytest.mark.parametrize("partitions", [0, 2])
def test_a_consumer_with_a_schema_may_come_while_ours_is_attached(
    client, admin, peer, topic, kind, partitions
):
    """A consumer that names no schema would keep it out."""
    names = [TopicName.parse(topic)]
    if partitions:
        admin.create_partitioned_topic(topic, partitions)
        names = [names[0].of_partition(number) for number in range(partitions)]
    else:
        admin.create_topic(topic)
    planner = Subscription(PlanningClient(client), Calls(), "planner")
    readers = []
    if kind == "planner":
        planner.open(dict.fromkeys(names, InitialPosition.EARLIEST))
    else:
        options = SubscriptionOptions(name=client.reader_name("test"), durable=False)
        readers = [Consumer(client, name, options) for name in names]
    try:
        schema = AvroSchema(None, schema_definition=V0)
        with closing(peer.client.subscribe(topic, "typed", schema=schema)) as consumer:
            latest = client.schemas.latest(names[0])
            assert latest is not None
            assert latest.version == 0
            with closing(peer.client.create_producer(topic, schema=schema)) as producer:
                producer.send({"n": 7})
            assert consumer.receive(120_000).value() == {"n": 7}
    finally:
        planner.close()
        for reader in readers:
            reader.close()


def test_our_subscriptions_may_come_after_any_schema(client, peer, topic):
    with closing(peer.client.create_producer(topic, schema=StringSchema())) as producer:
        producer.send("text")
    assert versions(client, topic) == [0]
