"""Pulsar 5: typed rows, topics that become scalable, and scalable topics while their segments change."""

import json
import re
from collections import Counter

import pytest
from pyspark.errors import PySparkException

from integration.broker.waiting import wait_until
from integration.fixtures.spark import Collector, PulsarInSpark, await_rows, begun, drain, finish, start
from integration.helpers.java_segments import KINDS, consume_in_java_5, produce_in_java_5
from integration.helpers.peer import Peer, Record
from integration.helpers.raw import RawConnection, RawProducer
from integration.helpers.segments import ScalableTopic
from integration.helpers.transactions import Coordinator
from pulsar_spark.cli import main
from pulsar_spark.client import Admin as ServiceAdmin
from pulsar_spark.client import Client, ClientOptions, PlanningClient, Schema, SchemaType, register_schema
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.options.parse import parse_source
from pulsar_spark.spark.plan.topics import migrated

KEYS = [f"key-{number}" for number in range(12)]


@pytest.fixture
def pulsar(spark, line_5):
    return PulsarInSpark(spark, line_5.service_url)


def assert_complete(rows, counts):
    """Each message came once, and those of a key in order."""
    seen = dict.fromkeys(counts, 0)
    for row in rows:
        key, _, number = bytes(row.value).decode().partition(":")
        assert int(number) == seen[key], f"{number} of {key} came where {seen[key]} was to come"
        seen[key] += 1
    assert seen == counts


def test_typed_rows_are_copied_once(pulsar, topic, checkpoint):
    """By two runs of a query with one checkpoint."""
    copy = f"{topic}-copy"
    rows = [(number, None if number % 5 == 0 else f"item {number}", number / 4) for number in range(600)]
    for part in (rows[:400], rows[400:]):
        pulsar.write(pulsar.rows(part, "id long, item string, price double"), topic, valueFormat="columns")
        options = {"valueFormat": "columns", "startingOffsets": "earliest"}
        read = pulsar.stream(topic, **options).select("id", "item", "price")
        writer = pulsar.write_stream(read, checkpoint, copy, valueFormat="columns")
        finish(begun(writer.trigger(availableNow=True)))
    copied = pulsar.read(copy, valueFormat="columns").select("id", "item", "price")
    assert sorted(tuple(row) for row in copied.collect()) == rows


def test_a_scalable_topic_in_two_runs(pulsar, line_5, scalable, checkpoint):
    """Segments split and merge before, between and during the runs."""
    collector = Collector()
    rows = pulsar.stream(
        str(scalable.name), **{"admin.url": line_5.admin_url, "metadataColumns": "__topic,__partition"}
    )

    def write(count):
        for _ in range(count):
            for key in KEYS:
                scalable.write(key)

    write(5)
    scalable.split(scalable.active[0])
    write(5)
    assert pulsar.read(str(scalable.name)).count() == 10 * len(KEYS)
    query = start(rows, collector, checkpoint)
    try:
        await_rows(query, lambda: len(collector.rows) == 10 * len(KEYS))
        scalable.merge(*scalable.active)
        write(5)
        await_rows(query, lambda: len(collector.rows) == 15 * len(KEYS))
    finally:
        query.stop()
    write(5)
    scalable.split(scalable.active[0])
    write(5)
    drain(rows, collector, checkpoint)
    assert_complete(collector.rows, scalable.counts)
    assert {(row["__topic"], row["__partition"]) for row in collector.rows} == {
        (str(scalable.name), number) for number in range(6)
    }
    wait_until(lambda: len(scalable.subscriptions()) == 1)


def test_a_query_moves_with_a_topic_that_becomes_scalable(pulsar, line_5, topic, checkpoint):
    """From its own checkpoint: each message of before and of after comes once."""
    admin, collector, local = line_5.admin, Collector(), topic.rpartition("/")[2]
    admin.create_partitioned_topic(topic, 2)

    def old(begin, end):
        with Peer(line_5.service_url) as peer:
            peer.produce(topic, [Record(b"%d" % number, key=str(number)) for number in range(begin, end)])

    old(0, 40)
    drain(pulsar.stream(topic), collector, checkpoint)
    old(40, 100)
    options = parse_source({"service.url": line_5.service_url, "topic": topic}, Mode.STREAM)
    with Client(options.client) as client:
        assert migrated(PlanningClient(client), options.topics) == []
        admin.request("POST", f"scalable/public/default/{local}/migrate?force=true")
        (told,) = migrated(PlanningClient(client), options.topics)
    assert (
        f"[PULSAR_TOPIC_MIGRATED] new messages of this topic are in topic://public/default/{local};"
        in str(told)
    )
    drain(pulsar.stream(topic), collector, checkpoint)
    with ScalableTopic(line_5.service_url, admin, local, segments=0) as scalable:
        for _ in range(5):
            for key in KEYS:
                scalable.write(key)
        rows = pulsar.stream(str(scalable.name), **{"admin.url": line_5.admin_url})
        drain(rows, collector, checkpoint)
        values = [bytes(row.value).decode() for row in collector.rows]
        assert sorted(value for value in values if ":" not in value) == sorted(map(str, range(100)))
        assert_complete((row for row in collector.rows if b":" in row.value), scalable.counts)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_migrated_topic_that_ends_with_a_marker(spark, line_5, topic, checkpoint, is_committed):
    """Of a transaction: readers never see its last entry, and what follows is read all the same."""
    pulsar = PulsarInSpark(spark, line_5.service_url)
    local, collector = topic.rpartition("/")[2], Collector()
    with (
        Client(ClientOptions(service_url=line_5.service_url)) as client,
        RawConnection(line_5.service_url) as connection,
    ):
        coordinator = Coordinator(client)
        producer = RawProducer(connection, topic)
        producer.send(b"plain")
        txn = coordinator.begin([topic])
        producer.send(b"txn", txn=txn)
        (coordinator.commit if is_committed else coordinator.abort)(txn)
        drain(pulsar.stream(topic), collector, checkpoint)
    line_5.admin.request("POST", f"scalable/public/default/{local}/migrate?force=true")
    with ScalableTopic(line_5.service_url, line_5.admin, local, segments=0) as scalable:
        scalable.write(KEYS[0])
        drain(pulsar.stream(str(scalable.name), **{"admin.url": line_5.admin_url}), collector, checkpoint)
    values = [bytes(row.value) for row in collector.rows]
    assert values == [b"plain", *([b"txn"] if is_committed else []), b"%s:0" % KEYS[0].encode()]


def test_typed_values_of_a_scalable_topic(pulsar, line_5, scalable):
    """The schema is that of the topic."""
    field = '{"name": "id", "type": "long"}'
    schema = Schema(SchemaType.JSON, f'{{"type": "record", "name": "r", "fields": [{field}]}}'.encode())
    (segment,) = scalable.active
    with Client(ClientOptions(service_url=line_5.service_url)) as client:
        version = register_schema(client, segment, schema).to_bytes(8, "big")
    with RawConnection(line_5.service_url) as connection:
        producer = RawProducer(connection, str(segment))
        for number in range(10):
            producer.send(b'{"id": %d}' % number, schema_version=version)
    rows = pulsar.read(str(scalable.name), valueFormat="columns").select("id").collect()
    assert sorted(row.id for row in rows) == list(range(10))


def test_a_stream_of_a_scalable_topic_requires_the_admin_service(pulsar, scalable, checkpoint):
    with pytest.raises(PySparkException, match=r"PULSAR_OPTION.*admin\.url"):
        drain(pulsar.stream(str(scalable.name)), Collector(), checkpoint)


def test_a_removed_subscription_is_registered_again_by_the_running_query(
    pulsar, line_5, scalable, checkpoint
):
    """Its cursors on segments are no registration, though the broker lists them."""
    collector, admin = Collector(), ServiceAdmin(line_5.admin_url)
    query = start(pulsar.stream(str(scalable.name), **{"admin.url": line_5.admin_url}), collector, checkpoint)

    def registered():
        return [
            name for name, each in admin.scalable_subscriptions(scalable.name).items() if each == "STREAM"
        ]

    try:
        scalable.write(KEYS[0])
        await_rows(query, lambda: collector.rows)
        (name,) = registered()
        admin.release_scalable(scalable.name, name)
        scalable.write(KEYS[0])
        await_rows(query, lambda: len(collector.rows) == 2)
        scalable.split(scalable.active[0])
        wait_until(lambda: registered() == [name])
        scalable.write(KEYS[0])
        await_rows(query, lambda: len(collector.rows) == 3)
    finally:
        query.stop()
    assert_complete(collector.rows, scalable.counts)


def test_a_pattern_of_scalable_topics(pulsar, line_5, scalable, checkpoint):
    """Topics are created and deleted while the query runs and while it is stopped; a segment splits."""
    prefix, collector, counts = scalable.name.local, Collector(), Counter()
    pattern = {"topicsPattern": f"topic://public/default/{re.escape(prefix)}.*"}
    given = {"admin.url": line_5.admin_url, "metadataColumns": "__topic"} | pattern
    rows = pulsar.stream(**given)
    ScalableTopic(line_5.service_url, line_5.admin, f"other-{prefix}").__exit__(None, None, None)

    def write(topic):
        for key in KEYS:
            topic.write(key)
        counts[str(topic.name)] += len(KEYS)

    def found():
        return Counter(row["__topic"] for row in collector.rows)

    def created(number):
        return ScalableTopic(line_5.service_url, line_5.admin, f"{prefix}-{number}")

    query = start(rows, collector, checkpoint)
    try:
        write(scalable)
        await_rows(query, lambda: found() == counts)
        with created(1) as new, created(2) as gone:
            write(new)
            new.split(new.active[0])
            write(new)
            write(gone)
            await_rows(query, lambda: found() == counts)
            # Readers look at empty segments for a moment.
            wait_until(lambda: len([name for name in new.subscriptions() if "-tail-" not in name]) == 1)
            line_5.admin.request("DELETE", f"scalable/public/default/{gone.name.local}?force=true")
            write(scalable)
            await_rows(query, lambda: found() == counts)
            wait_until(lambda: str(gone.name) not in query.lastProgress["sources"][0]["endOffset"])
            query.stop()
            with created(3) as late:
                for topic in (scalable, new, late):
                    write(topic)
                drain(rows, collector, checkpoint)
                assert found() == counts
                for topic in (scalable, new, late):
                    mine = [row for row in collector.rows if row["__topic"] == str(topic.name)]
                    assert_complete(mine, topic.counts)
    finally:
        query.stop()
    del counts[f"{scalable.name}-2"]
    # The first segment is deleted when all have read it, perhaps by now.
    batch = Counter(row["__topic"] for row in pulsar.read(None, **given).select("__topic").collect())
    assert batch.keys() == counts.keys()


@pytest.fixture
def retained(line_5):
    """Segments are kept, also where no subscription holds them."""
    line_5.admin.set_retention("public/default", minutes=-1, megabytes=-1)
    yield
    line_5.admin.set_retention("public/default", minutes=0, megabytes=0)


@pytest.mark.usefixtures("retained")
def test_the_java_client_of_pulsar_5(pulsar, line_5, scalable, checkpoint):
    """It writes to segments in batches and without, with keys and without; all read the same."""
    keys = [*KEYS, "", "\u00fc \U0001f600", "k" * 300, None]
    written = []
    for batching in (True, False):
        messages = [
            (key, b"%d:%d" % (number, count))
            for count in range(len(written), len(written) + 20)
            for number, key in enumerate(keys)
        ]
        produce_in_java_5(line_5.service_url, scalable.name, messages, batching=batching)
        written += messages
        scalable.split(scalable.active[0])
    collector = Collector()
    options = {"admin.url": line_5.admin_url, "metadataColumns": "__key"}
    drain(pulsar.stream(str(scalable.name), **options), collector, checkpoint)
    ours = [
        (None if row["__key"] is None else bytes(row["__key"]).decode(), bytes(row.value))
        for row in collector.rows
    ]
    java = {kind: consume_in_java_5(line_5.service_url, scalable.name, kind, silence=5) for kind in KINDS}
    for name, found in {"ours": ours, **java}.items():
        assert Counter(found) == Counter(written), name
    for found in (ours, java["stream"]):
        for key in filter(None, keys):
            counts = [int(value.split(b":")[1]) for each, value in found if each == key]
            assert counts == sorted(counts), key


def test_the_command_creates_a_topic_and_removes_its_subscription(line_5, topic, capsys):
    """As docs/pulsar5.md has it."""
    name = topic.replace("persistent", "topic")

    def run(*arguments, code=0):
        assert main(["admin", *arguments, "--admin-url", line_5.admin_url]) == code
        return "".join(capsys.readouterr())

    assert run("create", name, "2") == "done\n"
    assert run("partitions", name) == "2\n"
    assert name in json.loads(run("topics", "public/default"))
    assert json.loads(run("schemas", name)) == {"getSchemaResponses": []}
    assert "It has 2 segments" in run("create", name, "3", code=1)
    admin = ServiceAdmin(line_5.admin_url)
    admin.hold_scalable(TopicName.parse(name, scalable=True), "mine")
    assert json.loads(run("subscriptions", name)) == ["mine"]
    assert run("unsubscribe", name, "mine") == "done\n"
    assert json.loads(run("stats", name))["subscriptions"] == {}
    assert run("delete", name) == "done\n"
    assert name not in map(str, admin.scalable_topics("public", "default"))


@pytest.mark.long
def test_segments_that_end_while_the_query_is_stopped(pulsar, line_5, scalable, checkpoint):
    """The subscription holds them. Without it they are gone, and the query names them."""
    collector = Collector()
    rows = pulsar.stream(str(scalable.name), **{"admin.url": line_5.admin_url})

    def write():
        for key in KEYS:
            scalable.write(key)

    def await_clean_up(number):
        """The broker looks each minute for old segments that nobody has to read."""
        with ScalableTopic(line_5.service_url, line_5.admin, f"held-by-nobody-{number}") as other:
            other.split(other.active[0])
            wait_until(lambda: len(other.segments) == 2, timeout=300)

    write()
    drain(rows, collector, checkpoint)
    for number in range(3):
        write()
        scalable.split(scalable.active[0])
        await_clean_up(number)
    write()
    drain(rows, collector, checkpoint)
    assert_complete(collector.rows, scalable.counts)
    write()
    (name,) = scalable.subscriptions()
    with Client(ClientOptions(service_url=line_5.service_url)) as client:
        client.admin(line_5.admin_url).release_scalable(scalable.name, name)
    ended = scalable.active[0]
    scalable.split(ended)
    wait_until(lambda: ended not in scalable.segments, timeout=300)
    write()
    with pytest.raises(PySparkException, match=rf"PULSAR_DATA_LOSS.*{ended.part}"):
        drain(rows, collector, checkpoint)
    options = {"admin.url": line_5.admin_url, "failOnDataLoss": "false"}
    drain(pulsar.stream(str(scalable.name), **options), collector, checkpoint)
    found = Counter(bytes(row.value).decode() for row in collector.rows)
    assert set(found.values()) == {1}
    newest = {f"{key}:{count - 1}" for key, count in scalable.counts.items()}
    assert newest <= found.keys()
    lost = {f"{key}:{count - 2}" for key, count in scalable.counts.items()}
    assert found.keys() | lost == {
        f"{key}:{number}" for key, count in scalable.counts.items() for number in range(count)
    }
