"""BrokerProbe: each closed ledger is asked about once, by the client or the admin service; chunks are met."""

import logging
import threading

import pytest

from pulsar_spark.client import Range
from pulsar_spark.errors import ConnectError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.broker_probe import BrokerProbe
from pulsar_spark.spark.plan.ranges import split_ranges
from tests.fake_broker import HANG
from tests.spark.plan.simulated_cluster import SimulatedCluster

T = TopicName.parse("t")
LAST = MessageId(30, 1)


@pytest.fixture
def cluster():
    """Ledgers 10, 20 and 30 with four, three and two entries of one, two and three messages."""
    found = SimulatedCluster()
    (topic,) = found.create("t")
    topic.produce(4)
    topic.roll_over()
    topic.produce(3, messages=2)
    topic.roll_over()
    topic.produce(2, messages=3)
    return found


@pytest.fixture
def chunks():
    return []


@pytest.fixture
def probe(cluster, chunks):
    return BrokerProbe(cluster, None, chunks.append)


def test_a_ledger_s_end_is_asked_for_once(cluster, probe):
    for _ in range(3):
        assert probe.ledger_end(T, MessageId(10, 1), LAST) == (3, None)
    assert cluster.count("ledger") == 1


def test_the_admin_service_knows_all_ledgers_at_once(cluster, chunks):
    probe = BrokerProbe(cluster, "http://localhost:1", chunks.append)
    assert probe.ledger_end(T, MessageId(10, 1), LAST) == (3, 400)
    assert probe.ledger_end(T, MessageId(20, 1), LAST) == (2, 300)
    assert (cluster.count("admin"), cluster.count("ledger")) == (1, 0)


def test_an_admin_service_that_does_not_answer_is_done_without(cluster, chunks, caplog):
    probe = BrokerProbe(cluster, "http://localhost:1", chunks.append)
    cluster.failing[T] = ConnectError("cut")
    with caplog.at_level(logging.WARNING), pytest.raises(ConnectError):
        probe.ledger_end(T, MessageId(10, 1), LAST)
    assert "admin.url is not used at the moment" in caplog.text


def test_the_admin_service_is_not_asked_about_segments(cluster, chunks, caplog):
    probe = BrokerProbe(cluster, "http://localhost:1", chunks.append)
    segment = TopicName.parse("topic://public/default/st", scalable=True).segment(0, 0xFFFF, 0)
    cluster.topics[segment] = cluster.topics[T]
    assert probe.ledger_end(segment, MessageId(10, 1), LAST) == (3, None)
    assert cluster.count("admin") == 0
    assert caplog.records == []


def placed(probe, start, end):
    """Where each entry of a range lies, as the probe finds it."""
    asked = Range(T, MessageId.parse(start), MessageId.parse(end))
    track = probe.tracks([asked])[T]
    probe.find({T: (track, range(1, track.length))})
    return [track.place(number) for number in range(1, track.length + 1)]


@pytest.mark.parametrize("admin_url", [None, "http://localhost:1"])
@pytest.mark.parametrize(
    ("start", "end"),
    [("10:-1", "30:1"), ("10:1", "30:0"), ("10:2:1", "20:1"), ("10:3", "30:1"), ("20:0", "30:1")],
)
def test_the_entries_of_a_range_over_several_ledgers(cluster, chunks, admin_url, start, end):
    probe = BrokerProbe(cluster, admin_url, chunks.append)
    expected = cluster.topics[T].between(MessageId.parse(start), MessageId.parse(end))
    assert placed(probe, start, end) == expected
    if admin_url is not None:
        assert (cluster.count("admin"), cluster.count("count")) == (1, 0)


def test_the_first_ledger_of_a_cluster_has_the_number_0(cluster, chunks):
    del cluster.topics[T]
    (topic,) = cluster.create("t", ledger=0)
    topic.produce(2)
    topic.roll_over()
    topic.produce()
    probe = BrokerProbe(cluster, None, chunks.append)
    assert placed(probe, "0:-1", str(topic.last)) == topic.ids


@pytest.mark.parametrize("gap", [1, 7, 50_000])
@pytest.mark.parametrize("sizes", ["equal", "one is long"])
def test_requests_for_many_ledgers(cluster, chunks, gap, sizes):
    """401 ledgers in 40 parts: one request by the admin service, else a few for each part."""
    del cluster.topics[T]
    (topic,) = cluster.create("t")
    for number in range(401):
        topic.produce(500 if sizes != "equal" and number == 200 else 5)
        topic.roll_over(topic.ledgers[-1] + gap)
    topic.produce(5)
    whole = Range(T, topic.begin, topic.last)
    found = []
    for admin_url in (None, "http://localhost:1"):
        probe = BrokerProbe(cluster, admin_url, chunks.append)
        found.append(split_ranges([whole], probe, min_partitions=40, max_messages=None))
        counts = [len(topic.between(each.start, each.end)) for each in found[-1]]
        assert len(counts) == 40
        assert max(counts) - min(counts) <= 1
    assert found[0] == found[1]
    assert cluster.count("admin") == 1
    assert cluster.count("count") <= (80 if sizes == "equal" else 250)


def test_the_messages_of_an_entry_are_those_of_the_first(probe):
    ranges = [Range(T, MessageId(20, -1), LAST)]
    assert probe.messages_per_entry(ranges) == {T: 2.0}
    assert probe.messages_per_entry([Range(T, MessageId(30, 0, 1), LAST)]) == {T: 3.0}


def test_a_range_of_one_entry_is_not_asked_about(cluster, probe):
    assert probe.messages_per_entry([Range(T, MessageId(30, 0), LAST)]) == {}
    assert cluster.count("probe") == 0


def test_partitions_are_asked_side_by_side(cluster, chunks, monkeypatch):
    topics = [TopicName.parse("u").of_partition(number) for number in range(4)]
    for topic in cluster.create("u", 4):
        topic.produce(2, messages=7)
        topic.roll_over()
        topic.produce(1)
    together = threading.Barrier(4, timeout=HANG)

    def waits(method):
        def call(*arguments):
            together.wait()
            return method(*arguments)

        return call

    for name in ("probe_entry", "count_entries"):
        monkeypatch.setattr(cluster, name, waits(getattr(cluster, name)))
    probe = BrokerProbe(cluster, None, chunks.append)
    ranges = [Range(topic, MessageId(10, -1), MessageId(20, 0)) for topic in topics]
    assert probe.messages_per_entry(ranges) == dict.fromkeys(topics, 7.0)
    tracks = probe.tracks(ranges)
    assert [tracks[topic].length for topic in topics] == [3] * 4
    probe.find({topic: (track, [1]) for topic, track in tracks.items()})
    assert [tracks[topic].place(1) for topic in topics] == [MessageId(10, 0)] * 4


def test_chunks_are_reported_however_they_are_met(cluster, probe, chunks):
    whole = cluster.topics[T].last
    parts = cluster.topics[T].produce(3, chunks=True)
    reader = probe.probe_entries(T, MessageId(30, -1))
    assert [entry.id for entry in reader.read(6, 1 << 20, parts[-1])] == [MessageId(30, 0), whole]
    assert chunks == []
    assert [entry.id for entry in reader.read(1, 1 << 20, parts[-1])] == parts
    assert chunks == [T]
    reader.close()
    assert cluster.open_readers == 0
    assert probe.probe_entry(T, whole).id == whole
    assert chunks == [T]
    assert probe.probe_entry(T, parts[2]).id == parts[2]
    assert chunks == [T, T]
