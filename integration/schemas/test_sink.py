"""What the sink registers, and what it refuses; values once where a write is run again.

That other clients read every type is in ``test_schemas_peers_sink``.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import NamedTuple

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as f

from integration.broker.waiting import wait_until
from integration.fixtures.spark import Collector, PulsarInSpark, await_rows, start
from integration.helpers.crypto_keys import make_keys, peers_key
from integration.helpers.payloads import avro_value, register
from integration.helpers.peer import Peer
from integration.helpers.replays import STRICT, Replays
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.sink.topic_encoders import warn_of_bytes

COLUMNS = {"valueFormat": "columns"}


class Stored(NamedTuple):
    """A message as the C++ client gives it.

    Attributes:
        payload: None for a tombstone.
        key: None for none.
        version: of its schema; None for none.
        producer: the name of who wrote it.
    """

    payload: bytes | None
    key: str | None
    version: int | None
    producer: str


def stored(peer, topic):
    """All messages of a topic, partition by partition."""
    found = []
    for message in peer.messages(topic):
        payload = None if message.has_null_value() else message.data()
        # Its own way to give the version as bytes makes a text of them.
        version = message._message.int_schema_version() if message.schema_version() else None
        found.append(Stored(payload, message.partition_key() or None, version, message.producer_name()))
    return found


def schema_at(client, topic, version):
    schema = client.schemas.at(TopicName.parse(topic), version)
    assert schema is not None
    return schema


def values(client, peer, topic):
    """Each message's version, and its value as fastavro reads it by that version."""
    return [
        (
            version,
            None
            if payload is None or version is None
            else avro_value(json.loads(schema_at(client, topic, version).data), payload),
        )
        for payload, _, version, _ in stored(peer, topic)
    ]


def fields(client, topic):
    """The fields of the topic's latest schema, with their types."""
    latest = client.schemas.latest(TopicName.parse(topic))
    assert latest is not None
    return {field["name"]: field["type"] for field in json.loads(latest.schema.data)["fields"]}


def test_a_column_that_comes_makes_a_version_and_one_that_goes_does_not(pulsar_in_spark, client, peer, topic):
    """Under the default strategy, FULL."""
    here = pulsar_in_spark
    here.write(here.rows([(1, "a")], "id int, item string"), topic, **COLUMNS)
    here.write(here.rows([(2, "b", 1.5)], "id int, item string, price double"), topic, **COLUMNS)
    here.write(here.rows([("c", 3)], "item string, id int"), topic, **COLUMNS)
    here.write(here.rows([(None, 4)], "note string, id int"), topic, **COLUMNS)
    assert values(client, peer, topic) == [
        (0, {"id": 1, "item": "a"}),
        (1, {"id": 2, "item": "b", "price": 1.5}),
        (1, {"id": 3, "item": "c", "price": None}),
        (2, {"id": 4, "item": None, "price": None, "note": None}),
    ]
    assert list(fields(client, topic)) == ["id", "item", "price", "note"]
    rows = here.read(topic, valueFormat="columns").select("id", "item", "price", "note").collect()
    assert sorted(map(tuple, rows)) == [
        (1, "a", None, None),
        (2, "b", 1.5, None),
        (3, "c", None, None),
        (4, None, None, None),
    ]


def test_new_fields_are_nullable_whatever_the_optimizer_knows(pulsar_in_spark, client, peer, topic):
    """The sink is told the types of the optimized plan; printSchema says that the first may be null."""
    here = pulsar_in_spark
    here.write(here.spark.range(1).selectExpr("if(rand() < 2, 7L, null) AS n", "1 AS one"), topic, **COLUMNS)
    here.write(here.rows([(None, None)], "n long, one int"), topic, **COLUMNS)
    assert values(client, peer, topic) == [(0, {"n": 7, "one": 1}), (0, {"n": None, "one": None})]


def test_a_schema_of_the_users_own_is_registered(pulsar_in_spark, client, peer, topic):
    here = pulsar_in_spark
    fields = [{"name": "n", "type": "long"}, {"name": "e", "type": "int", "default": 5}]
    own = json.dumps({"type": "record", "name": "Theirs", "namespace": "shop", "fields": fields})
    given = {**COLUMNS, "valueSchema": own, "keySchema": "INT64", "keyColumns": "k"}
    with pytest.raises(PySparkException, match=r"\[PULSAR_SCHEMA\].*'x' has no field in valueSchema"):
        here.write(here.rows([(1, 2, 3)], "k long, n long, x int"), topic, **given)
    here.write(here.rows([(1, 2)], "k long, n long"), topic, **given)
    latest = client.schemas.latest(TopicName.parse(topic))
    assert latest is not None
    assert own.encode() in latest.schema.data
    rows = here.read(topic, valueFormat="columns", metadataColumns="")
    assert [(row.key, row.value.asDict()) for row in rows.collect()] == [(1, {"n": 2, "e": 5})]


def test_records_as_json(pulsar_in_spark, client, peer, topic):
    here, options = pulsar_in_spark, {"valueFormat": "columns", "schemaType": "json"}
    here.write(here.rows([(1, "a")], "id int, item string"), topic, **options)
    here.write(here.rows([(2, None, [1.5])], "id int, item string, more array<double>"), topic, **options)
    found = [(version, json.loads(payload or b"")) for payload, _, version, _ in stored(peer, topic)]
    assert found == [(0, {"id": 1, "item": "a"}), (1, {"id": 2, "more": [1.5]})]
    assert list(fields(client, topic)) == ["id", "item", "more"]
    here.write(here.rows([(3, "c")], "id int, item string"), topic, **COLUMNS)
    assert json.loads(stored(peer, topic)[-1].payload or b"") == {"id": 3, "item": "c"}


def test_a_topic_keeps_its_own_schema(pulsar_in_spark, client, peer, admin, topic):
    kind = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
    own = [
        {"name": "color", "type": kind},
        {"name": "number", "type": "double"},
        {"name": "other", "type": ["null", "long"], "default": None},
        {"name": "left", "type": "string", "default": "none"},
    ]
    definition = {"type": "record", "name": "Theirs", "namespace": "a.b", "fields": own}
    register(admin, topic, "AVRO", definition)
    rows = pulsar_in_spark.rows([(7, 1, "BLUE")], "other int, number int, color string")
    for registration in ("auto", "existing"):
        pulsar_in_spark.write(rows, topic, **COLUMNS, schemaRegistration=registration)
    expected = {"color": "BLUE", "number": 1.0, "other": 7, "left": "none"}
    assert values(client, peer, topic) == [(0, expected)] * 2
    assert client.schemas.at(TopicName.parse(topic), 1) is None


def test_rows_that_do_not_fit_are_not_written(pulsar_in_spark, peer, client, topic):
    here = pulsar_in_spark
    rows = here.rows([(1, "a")], "id int, item string")
    with pytest.raises(PySparkException, match=r"\[PULSAR_SCHEMA\] the topic has no schema, but schemaReg"):
        here.write(rows, topic, **COLUMNS, schemaRegistration="existing")
    here.write(rows, topic, **COLUMNS)
    other = here.rows([("x", "a", 1)], "id string, item string, more int")
    with pytest.raises(PySparkException, match=r"\[PULSAR_SCHEMA\].*'id' is string, but the topic has int"):
        here.write(other, topic, **COLUMNS)
    more = here.rows([(2, "b", 1)], "id int, item string, more int")
    with pytest.raises(PySparkException, match=r"\[PULSAR_SCHEMA\].*'more' has no field .*=existing"):
        here.write(more, topic, **COLUMNS, schemaRegistration="existing")
    assert len(peer.read_all(topic)) == 1
    assert client.schemas.at(TopicName.parse(topic), 1) is None


def test_what_the_broker_refuses_is_said_with_its_strategy(
    pulsar_in_spark, admin, peer, client, namespace, own_topic
):
    here, topic = pulsar_in_spark, own_topic
    path = f"namespaces/{namespace}/schemaCompatibilityStrategy"
    admin.request("PUT", path, "ALWAYS_INCOMPATIBLE")
    # In this order: a topic that is open takes a new policy over later.
    wait_until(lambda: admin.request("GET", path) == "ALWAYS_INCOMPATIBLE")
    here.write(here.rows([(1,)], "id int"), topic, **COLUMNS)
    more = here.rows([(2, "b")], "id int, item string")

    def refusal():
        with pytest.raises(PySparkException) as caught:
            here.write(more, topic, **COLUMNS)
        return str(caught.value)

    text = refusal()
    assert "[PULSAR_SCHEMA] the broker refused the request:" in text
    assert "ALWAYS_INCOMPATIBLE" in text
    assert values(client, peer, topic) == [(0, {"id": 1})]


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_key_and_value_of_a_topic(pulsar_in_spark, client, peer, topic, encoding):
    """A second write takes the topic's encoding; a new column of the value makes a version."""
    here = pulsar_in_spark
    options = COLUMNS | {"keyColumns": "id"}
    here.write(here.rows([("k", 1)], "id string, n int"), topic, **options, keyValueEncoding=encoding)
    here.write(here.rows([("k", 2, "x")], "id string, n int, more string"), topic, **options)
    first, second = stored(peer, topic)
    assert (first.version, second.version) == (0, 1)
    is_inline = encoding == "INLINE"
    assert (first.key, second.key) == ((None, None) if is_inline else ("aw==", "aw=="))  # "k" in base64
    head = b"\x00\x00\x00\x01k\x00\x00\x00" if is_inline else b""
    one, two = b"\x02\x02", b"\x02\x04\x02\x02x"
    assert first.payload == (head + bytes([len(one)]) if is_inline else b"") + one
    assert second.payload == (head + bytes([len(two)]) if is_inline else b"") + two
    rows = here.read(topic, valueFormat="columns").select("key", "value.*").collect()
    assert sorted(map(tuple, rows)) == [("k", 1, None), ("k", 2, "x")]
    other = "SEPARATED" if is_inline else "INLINE"
    with pytest.raises(PySparkException, match=rf"KEY_VALUE schema is {encoding}, but keyValueEncoding is"):
        here.write(here.rows([("k", 3)], "id string, n int"), topic, **options, keyValueEncoding=other)


def test_tombstones_of_records(pulsar_in_spark, client, peer, topic):
    here = pulsar_in_spark
    rows = here.rows([("a", (1,)), ("b", None), ("c", (None,))], "__key string, value struct<n: int>")
    here.write(rows, topic, valueFormat="struct", upsert="true")
    assert values(client, peer, topic) == [(0, {"n": 1}), (0, None), (0, {"n": None})]
    assert [message.key for message in stored(peer, topic)] == ["a", "b", "c"]
    found = here.read(topic, valueFormat="columns", metadataColumns="__isNull").collect()
    assert [tuple(row) for row in found] == [(1, False), (None, True), (None, False)]
    copy = f"{topic}-copy"
    here.write(
        here.read(topic, valueFormat="struct").drop("__topic"), copy, valueFormat="struct", upsert="true"
    )
    assert values(client, peer, copy) == values(client, peer, topic)
    assert [message.key for message in stored(peer, copy)] == ["a", "b", "c"]


def test_bytes_for_a_topic_of_records_are_warned_of(client, admin, topic, caplog):
    other = TopicName.parse(f"{topic}-other")
    admin.create_topic(str(other))
    register(admin, topic, "JSON", {"type": "record", "name": "Own", "fields": []})
    warn_of_bytes(client, other)
    assert caplog.messages == []
    warn_of_bytes(client, TopicName.parse(topic))
    assert "has a schema (JSON), but rows are written as bytes" in caplog.text


def test_rows_that_name_their_topics(pulsar_in_spark, client, peer, admin, topic):
    """Several tasks meet the topics at the same time; one topic has a schema of its own."""
    here, names = pulsar_in_spark, [f"{topic}-{number}" for number in range(3)]
    definition = {"type": "record", "name": "Own", "fields": [{"name": "n", "type": "long"}]}
    register(admin, names[2], "AVRO", definition)
    rows = here.spark.range(300, numPartitions=4).select(
        f.col("id").cast("int").alias("n"),
        f.concat(f.lit(f"{topic}-"), (f.col("id") % 3).cast("string")).alias("__topic"),
    )
    here.write(rows, **COLUMNS)
    for number, name in enumerate(names):
        found = values(client, peer, name)
        assert sorted(value["n"] for _, value in found) == list(range(number, 300, 3))
        assert {version for version, _ in found} == {0}
    wide = rows.withColumn("more", f.lit("x"))
    here.write(wide, **COLUMNS)
    for name in names:
        found = values(client, peer, name)
        assert Counter(version for version, _ in found) == {0: 100, 1: 100}
        assert {value["more"] for version, value in found if version == 1} == {"x"}
        assert client.schemas.at(TopicName.parse(name), 2) is None


# ---- a micro-batch that is run again

ROWS = 8000


@pytest.fixture
def query(pulsar_in_spark, admin, once_topic, tmp_path):
    return Replays(pulsar_in_spark, admin.url, once_topic, tmp_path, rows=ROWS, tasks=2, size=200, keys=50)


def typed(rows):
    number = f.substring_index("value", ".", 1).cast("long")
    return rows.select("__key", number.alias("n"), f.col("value").alias("text"))


def fails_midway(query):
    """Run the query until one of its tasks fails, when rows are stored."""
    query.fails("StepFailedError", query.at(3000, stored=1), typed, **COLUMNS, **STRICT)


@pytest.mark.usefixtures("small_batches")
def test_a_batch_that_is_run_again_is_written_once(query, client, peer, once_topic):
    fails_midway(query)
    assert 0 < len(stored(peer, once_topic)) < ROWS
    query.run(None, typed, **COLUMNS, **STRICT, **{"pulsar.producer.batchingMaxMessages": "37"})
    found = values(client, peer, once_topic)
    assert sorted(value["n"] for _, value in found) == list(range(ROWS))
    assert {version for version, _ in found} == {0}


@pytest.mark.usefixtures("small_batches")
def test_a_version_that_others_register_meanwhile_changes_no_row_of_a_replay(
    query, client, peer, admin, once_topic
):
    """The driver of the second run chooses the new version; the tasks go back to that of what is stored."""
    fails_midway(query)
    before = stored(peer, once_topic)
    assert 0 < len(before) < ROWS
    definition = json.loads(schema_at(client, once_topic, 0).data)
    definition["fields"].append({"name": "theirs", "type": ["null", "string"], "default": None})
    assert register(admin, once_topic, "AVRO", definition) == 1
    query.run(None, typed, **COLUMNS, **STRICT)
    found = values(client, peer, once_topic)
    assert sorted(value["n"] for _, value in found) == list(range(ROWS))
    versions = {(message.producer, message.version) for message in stored(peer, once_topic)}
    assert len(versions) == 2, "each of the two tasks has written by one version"
    assert {(message.producer, 0) for message in before} <= versions


# ---- namespaces and topics that want more


FORMATS: dict[str, dict[str, str]] = {
    "avro": COLUMNS,
    "json": {"valueFormat": "columns", "schemaType": "json"},
    "primitive": {"valueFormat": "columns", "schemaType": "primitive"},
    "key and value": COLUMNS | {"keyColumns": "k"},
}


def rows_for(here, kind, count):
    """Rows of two tasks."""
    numbers = here.spark.range(count, numPartitions=2)
    if kind == "primitive":
        return numbers.select(f.col("id").alias("n"))
    return numbers.select(f.concat(f.lit("k"), f.col("id") % 3).alias("k"), f.col("id").alias("n"))


def numbers_in(here, topic, **options):
    """The numbers of ``rows_for``, as they are read by the topic's schema."""
    rows = here.read(topic, valueFormat="columns", **options)
    column = "n" if "n" in rows.columns else "value.n" if "key" in rows.columns else "value"
    return sorted(row[0] for row in rows.select(column).collect())


@pytest.mark.parametrize(
    "kind",
    [
        "primitive",
        *(pytest.param(kind, marks=pytest.mark.long) for kind in ("key and value", "avro", "json")),
    ],
)
def test_rows_of_transactions(spark, transactional_broker, topic, tmp_path, kind):
    """A task fails after it has sent rows; nothing of that run is seen, and the next one writes each once."""
    here = PulsarInSpark(spark, transactional_broker.service_url)
    options = FORMATS[kind] | {"delivery": "transactional"}
    transactional_broker.admin.create_held_topic(topic, 2)
    broken = tmp_path / "broken"
    broken.touch()

    def fail(batches):
        for batch in batches:
            yield batch
            if broken.exists() and 7 in batch["n"].to_pylist():
                raise RuntimeError("a failure that was asked for")

    def run():
        number = f.col("value")
        rows = here.ticks(400, 2).where(number < 400).withColumn("n", number)
        rows = rows.select("n") if kind == "primitive" else rows.select(f.lit("k").alias("k"), "n")
        failing = rows.mapInArrow(fail, rows.schema)
        query = here.write_stream(failing, tmp_path / "checkpoint", topic, **options).start()
        try:
            await_rows(query, lambda: (query.lastProgress or {}).get("batchId", -1) >= 0)
        finally:
            query.stop()

    with Peer(transactional_broker.service_url) as peer:
        with pytest.raises(StreamingQueryException, match="asked for"):
            run()
        assert stored(peer, topic) == []
        broken.unlink()
        run()
        found = stored(peer, topic)
    assert (len(found), {message.version for message in found}) == (400, {0})
    assert numbers_in(here, topic) == list(range(400))


@pytest.mark.parametrize("kind", FORMATS)
def test_encrypted_rows_where_all_must_be(pulsar_in_spark, admin, peer, namespace, own_topic, tmp_path, kind):
    """Registering the schema, too, is done with a producer that the namespace takes."""
    here, topic, keys = pulsar_in_spark, own_topic, make_keys(tmp_path)
    admin.require_encryption(namespace)
    own = {"pulsar.producer.cryptoKeyReader": str(keys), "pulsar.producer.encryptionKeys": "rsa"}
    for _ in range(2):
        here.write(rows_for(here, kind, 50), topic, **FORMATS[kind], **own)
    read = {"pulsar.reader.cryptoKeyReader": f"file://{keys}"}
    assert numbers_in(here, topic, **read) == sorted([*range(50), *range(50)])
    with pytest.raises(PySparkException, match=r"\[PULSAR_CRYPTO\]"):
        numbers_in(here, topic)
    first = next(peer.messages(topic, crypto_key_reader=peers_key(keys, "rsa")))
    assert first._message.int_schema_version() == 0


@pytest.mark.parametrize(
    ("kind", "delivery"), [*((kind, "at-least-once") for kind in FORMATS), ("avro", "effectively-once")]
)
def test_a_namespace_that_takes_no_producer_without_a_schema(
    pulsar_in_spark, admin, client, namespace, own_topic, tmp_path, kind, delivery
):
    """All producers bring the schema: those of rows, of the registration and of the deduplication."""
    here, topic = pulsar_in_spark, own_topic
    admin.set_deduplication(namespace, True)
    admin.enforce_schemas(namespace)
    admin.create_partitioned_topic(topic, 2)
    query = here.ticks(100, 2).where("value < 100").withColumn("n", f.col("value"))
    rows = query.select("n") if kind == "primitive" else query.select(f.lit("k").alias("k"), "n")
    sink = here.write_stream(rows, tmp_path / "checkpoint", topic, delivery=delivery, **FORMATS[kind])
    running = sink.start()
    try:
        await_rows(running, lambda: (running.lastProgress or {}).get("batchId", -1) >= 0)
    finally:
        running.stop()
    assert numbers_in(here, topic) == list(range(100))
    wait_until(lambda: admin.request("GET", f"namespaces/{namespace}/schemaValidationEnforced"))
    raw = here.rows([(b"x",)], "value binary")

    def is_refused():
        try:
            here.write(raw, topic)
        except PySparkException as error:
            return "[PULSAR_SCHEMA]" in str(error)
        return False

    wait_until(is_refused)
    assert client.schemas.at(TopicName.parse(topic), 1) is None


def test_a_topic_that_is_made_anew_under_a_stream(pulsar_in_spark, admin, topic, checkpoint):
    """Its versions begin anew, with another schema of the same number: read by that, not by the old one."""
    here = pulsar_in_spark
    here.write(here.rows([("old", 1)], "a string, b int"), topic, **COLUMNS)
    rows = here.stream(topic, valueFormat="columns", failOnDataLoss="false", metadataColumns="")
    found = Collector()
    query = start(rows, found, checkpoint)
    try:
        await_rows(query, lambda: found.rows)
        admin.delete_topic(topic)
        here.write(here.rows([(2, "new")], "b int, a string"), topic, **COLUMNS)
        await_rows(query, lambda: len(found.rows) > 1)
    finally:
        query.stop()
    assert [(row.a, row.b) for row in found.rows] == [("old", 1), ("new", 2)]
