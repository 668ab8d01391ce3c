"""Where reads begin and end: every form, in streams and batches, of every way to name topics.

One small set of topics serves all tests. They add to it and never take away, so what is expected is always
computed from all that the C++ client has written: its ids, and the publish times that it reads.
"""

import json
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta, timezone
from itertools import cycle
from typing import NamedTuple

import pulsar
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from integration.broker.waiting import wait_until
from integration.fixtures.spark import Collector, drain, start
from integration.helpers.peer import Peer, Record
from integration.helpers.raw import RawConnection, RawProducer

FAR_AHEAD = 4102444800000  # the year 2100, in ms
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Message(NamedTuple):
    """What was written: ``number`` counts within the partition."""

    number: int
    id: pulsar.MessageId
    value: str


class World:
    """Topics of one namespace: ``a`` and ``b`` with two partitions each, ``c`` without.

    Each partition holds two batches of three; then, published at ``middle`` or later, one batch of three and
    two single messages; then what tests add.
    """

    def __init__(self, cluster, peer):
        self.namespace = f"public/starts-{uuid.uuid4().hex[:8]}"
        self.peer = peer
        self.admin = cluster.admin
        self.admin.create_namespace(self.namespace)
        names = [f"persistent://{self.namespace}/{name}" for name in "abc"]
        for name in names[:2]:
            self.admin.create_partitioned_topic(name, 2)
        self.admin.create_topic(names[2])
        self.written: dict[str, list[Message]] = {
            partition: [] for name in names for partition in peer.client.get_topic_partitions(name)
        }
        for partition in self.written:
            self.add(partition, 6, batch_size=3)
        time.sleep(0.002)  # so that a publish time lies between
        for partition in self.written:
            self.add(partition, 3, batch_size=3)
            self.add(partition, 2)
        times = self.times()
        self.middle = min(times[messages[6].value] for messages in self.written.values())

    def add(self, partition, count, *, batch_size=0):
        messages = self.written[partition]
        local, first = partition.rpartition("/")[2], len(messages)
        values = [f"{local}:{number}" for number in range(first, first + count)]
        records = [Record(value.encode()) for value in values]
        ids = self.peer.produce(partition, records, batch_size=batch_size)
        numbered = zip(range(first, first + count), ids, values, strict=True)
        messages.extend(Message(*each) for each in numbered)

    def grow(self):
        """Two more messages in each partition."""
        for partition in self.written:
            self.add(partition, 2)

    def times(self):
        """Publish times by value, in ms, as the C++ client reads them."""
        return {
            message.data().decode(): message.publish_timestamp()
            for partition in self.written
            for message in self.peer.messages(partition)
        }

    def subscribe(self, partitions):
        """Make a subscription that has acknowledged the first batch of each partition."""
        name = f"named-{uuid.uuid4().hex[:8]}"
        for partition in partitions:
            self.admin.create_subscription(partition, name)
            with closing(self.peer.client.subscribe(partition, name)) as consumer:
                taken = self.written[partition][2].id
                # Without the index, which would mean what lies before the batch.
                consumer.acknowledge_cumulative(pulsar.MessageId(-1, taken.ledger_id(), taken.entry_id()))
        return name


@pytest.fixture(scope="module")
def world(cluster):
    with Peer(cluster.service_url) as peer:
        yield World(cluster, peer)


@pytest.fixture(scope="module")
def source(spark, cluster, world):
    return Source(spark, cluster.service_url, world)


class Source(NamedTuple):
    """The source with other ways to name topics than by `topic`."""

    spark: SparkSession
    service_url: str
    world: World

    def read(self, options):
        reader = self.spark.read.format("pulsar").option("service.url", self.service_url)
        return reader.options(**options).load().collect()

    def stream(self, options):
        reader = self.spark.readStream.format("pulsar").option("service.url", self.service_url)
        return reader.options(**options).load()


# ---- ways to name topics


class Naming(NamedTuple):
    """Options that name topics, and the partitions that they mean."""

    option: str
    value: str
    means: tuple[str, ...]

    def options(self, world):
        return {self.option: self.value.replace("NS", world.namespace)}

    def partitions(self, world):
        return [f"persistent://{world.namespace}/{name}" for name in self.means]


A = ("a-partition-0", "a-partition-1")
B = ("b-partition-0", "b-partition-1")
NAMINGS = {
    "topic": Naming("topic", "persistent://NS/a", A),
    "partition": Naming("topic", "NS/a-partition-1", A[1:]),
    "topics": Naming("topics", "NS/a, NS/c", (*A, "c")),
    "pattern": Naming("topicsPattern", "NS/[ab]", (*A, *B)),
}


# ---- forms

# Whether a message of a partition is read.
Takes = Callable[[str, Message], bool]
# What makes the options for partitions, and tells what they take.
Form = Callable[[World, list[str]], tuple[dict[str, str], Takes]]


def by_number(partitions, place):
    """Positions in JSON by topic and partition number."""
    topics: dict[str, dict[str, object]] = {}
    for partition in partitions:
        name, separator, number = partition.partition("-partition-")
        topics.setdefault(name, {})[number if separator else "-1"] = place(partition)
    return json.dumps(topics)


def is_odd(partition):
    return partition.endswith("-1")


def text_of(message, *, batch):
    text = f"{message.id.ledger_id()}:{message.id.entry_id()}"
    return f"{text}:{message.id.batch_index()}" if batch else text


def iso(ms):
    """As ISO-8601 in another zone than UTC."""
    moment = EPOCH + timedelta(milliseconds=ms)
    return moment.astimezone(timezone(timedelta(hours=5, minutes=30))).isoformat()


def ahead(message):
    """The second entry that will come after this one."""
    return f"{message.id.ledger_id()}:{message.id.entry_id() + 2}"


def word(text, *, end=False):
    def form(world, partitions):
        count = {each: len(world.written[each]) for each in partitions}
        option = {("endingOffsets" if end else "startingOffsets"): text}
        if end:
            return option, lambda partition, message: text == "latest"
        return option, lambda partition, message: text == "earliest" or message.number >= count[partition]

    return form


def words_by_partition(*, end=False):
    def form(world, partitions):
        count = {each: len(world.written[each]) for each in partitions}
        words = by_number(partitions, lambda each: "latest" if is_odd(each) else "earliest")
        if end:
            return {"endingOffsets": words}, lambda partition, message: is_odd(partition)
        return {
            "startingOffsets": words
        }, lambda partition, message: not is_odd(partition) or message.number >= count[partition]

    return form


def ids(*, batch, end=False):
    """Inside the second batch; in partitions with an odd number at the first single message."""

    def form(world, partitions):
        numbers = {each: 9 if is_odd(each) else 4 for each in partitions}
        named = {each: world.written[each][number] for each, number in numbers.items()}
        text = by_number(partitions, lambda each: text_of(named[each], batch=batch and not is_odd(each)))
        if end:
            last = {each: 5 if number == 4 and not batch else number for each, number in numbers.items()}
            return {"endingOffsets": text}, lambda partition, message: message.number <= last[partition]
        first = {each: 3 if number == 4 and not batch else number for each, number in numbers.items()}
        return {"startingOffsets": text}, lambda partition, message: message.number >= first[partition]

    return form


def jvm_bytes(*, end=False):
    def form(world, partitions):
        numbers = {each: 9 if is_odd(each) else 4 for each in partitions}
        data = {each: world.written[each][number].id.serialize() for each, number in numbers.items()}
        # As the JVM writes them: bytes with a sign.
        text = json.dumps({each: [(byte + 128) % 256 - 128 for byte in data[each]] for each in partitions})
        if end:
            return {"endingOffsets": text}, lambda partition, message: message.number <= numbers[partition]
        return {"startingOffsets": text}, lambda partition, message: message.number >= numbers[partition]

    return form


def at_time(write, *, end=False):
    def form(world, partitions):
        middle, times = world.middle, Times(world)
        option = "endingTime" if end else "startingTime"
        return {
            option: str(write(middle))
        }, lambda partition, message: (times[message.value] >= middle) is not end

    return form


def time_by_topic(*, end=False):
    """The middle for a, all of the others."""

    def form(world, partitions):
        middle, times = world.middle, Times(world)
        others = FAR_AHEAD if end else 0
        topics = dict.fromkeys(each.partition("-partition-")[0] for each in partitions)
        option = "endingTime" if end else "startingTime"
        given = {name: iso(middle) if name.endswith("/a") else others for name in topics}
        return {
            option: json.dumps(given)
        }, lambda partition, message: "/a-" not in partition or (times[message.value] >= middle) is not end

    return form


def subscription(*, end=False):
    def form(world, partitions):
        name = world.subscribe(partitions)
        option = "endingOffsets" if end else "startingOffsets"
        given = {option: "subscription", "predefinedSubscription": name}
        return given, lambda partition, message: (message.number >= 3) is not end

    return form


def id_ahead(*, end=False):
    def form(world, partitions):
        count = {each: len(world.written[each]) for each in partitions}
        text = by_number(partitions, lambda each: ahead(world.written[each][-1]))
        if end:
            return {"endingOffsets": text}, lambda partition, message: True
        # Of the two messages that come the second one is that.
        return {"startingOffsets": text}, lambda partition, message: message.number > count[partition]

    return form


def time_ahead(*, end=False):
    def form(world, partitions):
        return {("endingTime" if end else "startingTime"): str(FAR_AHEAD)}, lambda partition, message: end

    return form


class Times:
    """Publish times by value, asked for when they are needed."""

    def __init__(self, world):
        self._world = world
        self._known: dict[str, int] = {}

    def __getitem__(self, value):
        if value not in self._known:
            self._known = self._world.times()
        return self._known[value]


STARTS = {
    "earliest": word("earliest"),
    "latest": word("latest"),
    "ids": ids(batch=False),
    "batch-index": ids(batch=True),
    "words-by-partition": words_by_partition(),
    "jvm-bytes": jvm_bytes(),
    "time-ms": at_time(str),
    "time-iso": at_time(iso),
    "time-by-topic": time_by_topic(),
    "subscription": subscription(),
    "id-ahead": id_ahead(),
    "time-ahead": time_ahead(),
}
ENDS = {
    "earliest": word("earliest", end=True),
    "latest": word("latest", end=True),
    "ids": ids(batch=False, end=True),
    "batch-index": ids(batch=True, end=True),
    "words-by-partition": words_by_partition(end=True),
    "jvm-bytes": jvm_bytes(end=True),
    "time-ms": at_time(str, end=True),
    "time-iso": at_time(iso, end=True),
    "time-by-topic": time_by_topic(end=True),
    "subscription": subscription(end=True),
    "id-ahead": id_ahead(end=True),
    "time-ahead": time_ahead(end=True),
}


def expected(world, partitions, *takes):
    found = {}
    for partition in partitions:
        values = [
            message.value
            for message in world.written[partition]
            if all(take(partition, message) for take in takes)
        ]
        if values:
            found[partition] = values
    return found


def by_topic(rows):
    """Values by partition, in the order of the rows."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row["__topic"], []).append(bytes(row["value"]).decode())
    return found


def each_with_one_of(forms, others):
    """All forms, with another way of naming each."""
    return list(zip(forms, cycle(others), strict=False))


# ---- tests


@pytest.mark.parametrize(("form", "naming"), each_with_one_of(STARTS, ["pattern", "partition", "topics"]))
def test_a_batch_begins(source, world, form, naming):
    named = NAMINGS[naming]
    partitions = named.partitions(world)
    begin, takes = STARTS[form](world, partitions)
    rows = source.read(named.options(world) | begin)
    assert by_topic(rows) == expected(world, partitions, takes)


@pytest.mark.parametrize(("form", "naming"), each_with_one_of(ENDS, NAMINGS))
def test_a_batch_ends(source, world, form, naming):
    named = NAMINGS[naming]
    partitions = named.partitions(world)
    end, takes = ENDS[form](world, partitions)
    rows = source.read(named.options(world) | end)
    assert by_topic(rows) == expected(world, partitions, takes)


@pytest.mark.parametrize(
    ("first", "last"), [("words-by-partition", "ids"), ("batch-index", "batch-index"), ("time-ms", "time-ms")]
)
def test_a_batch_between(source, world, first, last):
    named = NAMINGS["topics"]
    partitions = named.partitions(world)
    begin, begun = STARTS[first](world, partitions)
    end, ended = ENDS[last](world, partitions)
    rows = source.read(named.options(world) | begin | end)
    assert by_topic(rows) == expected(world, partitions, begun, ended)


def streamed(form, naming):
    """One form of each kind in each run, and the others before a release: batches begin with all."""
    is_long = form not in ("earliest", "batch-index", "time-by-topic", "subscription", "id-ahead")
    return pytest.param(form, naming, marks=[pytest.mark.long] if is_long else [])


@pytest.mark.parametrize(("form", "naming"), [streamed(*each) for each in each_with_one_of(STARTS, NAMINGS)])
def test_a_stream_begins_and_goes_on(source, world, checkpoint, form, naming):
    named = NAMINGS[naming]
    partitions = named.partitions(world)
    begin, takes = STARTS[form](world, partitions)
    rows, sink = source.stream(named.options(world) | begin), Collector()
    drain(rows, sink, checkpoint)
    assert by_topic(sink.rows) == expected(world, partitions, takes)
    world.grow()
    drain(rows, sink, checkpoint)
    assert by_topic(sink.rows) == expected(world, partitions, takes)


@pytest.mark.parametrize(
    ("form", "naming"), [("latest", "pattern"), ("batch-index", "topics"), ("id-ahead", "topic")]
)
def test_a_stream_is_stopped_while_data_comes(source, world, checkpoint, form, naming):
    named = NAMINGS[naming]
    partitions = named.partitions(world)
    begin, takes = STARTS[form](world, partitions)
    rows, sink = source.stream(named.options(world) | begin), Collector()

    def run():
        query = start(rows, sink, checkpoint)
        try:
            wait_until(lambda: 0 in sink.batches)
            world.grow()
            wait_until(lambda: by_topic(sink.rows) == expected(world, partitions, takes))
        finally:
            query.stop()

    run()
    world.grow()
    run()
    assert by_topic(sink.rows) == expected(world, partitions, takes)


@pytest.mark.long
def test_a_stream_waits_for_a_time(source, admin, topic, checkpoint):
    admin.create_topic(topic)
    rows, sink = source.stream({"topic": topic, "startingTime": str(FAR_AHEAD)}), Collector()
    with RawConnection(source.service_url) as connection:
        producer = RawProducer(connection, topic)

        def come(sent, expected):
            for value, time in sent.items():
                producer.send(value.encode(), publish_time=FAR_AHEAD + time)
            drain(rows, sink, checkpoint)
            assert sink.values == expected

        come({"too early": -2}, [])
        come({"still too early": -1}, [])
        first = ["begins", "by another clock", "goes on"]
        come({"early": -1, "begins": 0, "by another clock": -1, "goes on": 1}, first)
        come({"also by another clock": -1}, [*first, "also by another clock"])


def test_a_new_query_begins_where_an_old_one_ended(source, world, tmp_path):
    """Each row once, also of what came between the two, and of a topic that the old one did not read.

    Its progress and its checkpoint show where it ended.
    """
    sinks = Collector(), Collector()
    naming = NAMINGS["topics"].options(world)
    options = dict(naming)
    old = drain(source.stream({**options, "startingOffsets": "earliest"}), sinks[0], tmp_path / "old")
    files = [file for file in (tmp_path / "old" / "offsets").iterdir() if file.name.isdecimal()]
    ended = max(files, key=lambda file: int(file.name)).read_text().splitlines()[-1]
    assert json.loads(ended) == json.loads(old.lastProgress["sources"][0]["endOffset"])
    world.grow()
    options["topics"] += f",{world.namespace}/b"
    drain(source.stream({**options, "startingOffsets": ended}), sinks[1], tmp_path / "new")
    found = by_topic([*sinks[0].rows, *sinks[1].rows])
    assert found == expected(world, list(world.written), lambda partition, message: True)
    assert by_topic(source.read({**naming, "endingOffsets": ended})) == by_topic(sinks[0].rows)


def test_a_form_that_does_not_fit_is_an_error(source, world):
    named = NAMINGS["topics"]
    only_a = by_number([f"persistent://{world.namespace}/{name}" for name in A], lambda each: "earliest")
    for options, text in (
        ({"startingOffsets": only_a}, "has no position for a partition that is read"),
        (
            {"endingOffsets": by_number([f"{world.namespace}/d"], lambda each: "1:1")},
            "names a topic or partition that this query does not read",
        ),
        ({"startingOffsets": "subscription", "predefinedSubscription": "none"}, "no subscription 'none'"),
    ):
        with pytest.raises(PySparkException, match=r"\[PULSAR_OPTION\]") as caught:
            source.read(named.options(world) | options)
        assert text in str(caught.value)
