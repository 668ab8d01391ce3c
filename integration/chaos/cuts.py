"""Connections cut at random bytes, in either direction, with FIN or RST, during reads and during writes.

Every connection that the client makes is cut. Reads must be exact: each message once, in order. Writes must
be complete: each message at least once, the first appearances of a key in order; and exact where the broker
deduplicates. What was written is read by the C++ client, past the proxy.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator

from integration.chaos.messages import (
    BEGINNING,
    assert_complete,
    columns_of,
    last_message,
    numbered,
    records_of,
)
from integration.helpers.cluster import ProxiedBroker, open_proxied_broker
from integration.helpers.peer import CompressionType, Peer, Record
from integration.helpers.proxy import Cut, Direction, Ending
from pulsar_spark.client import Client, ClientOptions, ProducerOptions, TopicWriter
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.ranges import read_range

MESSAGES = 5000
KEYS = 50
PARTITIONS = 2
HEADING = ("connection cut during", "cuts", "inside the handshake", "messages", "repeated", "seconds")

_DEDUPLICATED = "public/deduplicated"

# CONNECTED, which is the longer part of the handshake, ends before this byte.
_HANDSHAKE = 130
_MOST_BYTES = {Direction.TO_CLIENT: 150_000, Direction.TO_BROKER: 1000}


def cuts(seed: int, times: int) -> Iterator[tuple[object, ...]]:
    """Cut `times` connections during reads, and as many during each kind of writes."""
    yield HEADING
    with open_proxied_broker() as broker, Peer(broker.broker.service_url) as peer:
        yield "reads", *_reads(broker, peer, _Cuts(seed, _MOST_BYTES), times)
        # A writer sends what a reader is sent.
        most = {Direction.TO_BROKER: 150_000, Direction.TO_CLIENT: 5000}
        broker.broker.admin.create_namespace(_DEDUPLICATED)
        broker.broker.admin.set_deduplication(_DEDUPLICATED, True)
        for namespace in ("public/default", _DEDUPLICATED):
            for batching in (True, False):
                kind = "batches" if batching else "single messages"
                where = ", deduplicated" if namespace == _DEDUPLICATED else ""
                planned = _Cuts(seed, most)
                yield (
                    f"writes of {kind}{where}",
                    *_writes(broker, peer, planned, times, namespace, batching=batching),
                )


class _Cuts:
    """Random cuts, one for each connection; one in four is early enough to meet the handshake."""

    def __init__(self, seed: int, most_bytes: dict[Direction, int]) -> None:
        self._random = random.Random(seed)
        self._most_bytes = most_bytes
        self.in_handshake = 0

    def next(self) -> Cut:
        direction = self._random.choice(list(Direction))
        early = self._random.random() < 0.25
        after = self._random.randrange(_HANDSHAKE if early else self._most_bytes[direction])
        self.in_handshake += after < _HANDSHAKE
        return Cut(after, direction, self._random.choice(list(Ending)))


def _reads(broker: ProxiedBroker, peer: Peer, planned: _Cuts, times: int) -> tuple[object, ...]:
    topic = "persistent://public/default/cut-reads"
    broker.broker.admin.create_held_topic(topic, PARTITIONS)
    written: list[Record] = []
    for part, codec in enumerate(("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")):
        records = numbered(MESSAGES // 5, first=part * MESSAGES // 5, keys=KEYS, size=100)
        batch_size = (0, 7, 100)[part % 3]
        peer.produce(topic, records, batch_size=batch_size, compression=getattr(CompressionType, codec))
        written += records
    expected = peer.read_all(topic)
    assert Counter(record.value for record in expected) == Counter(record.value for record in written)
    ends = _ends(broker, topic)

    began, before = time.monotonic(), broker.proxy.connections
    broker.proxy.cut_next(*(planned.next() for _ in range(times)))
    messages = 0
    with Client(ClientOptions(service_url=broker.service_url)) as client:
        # As long as a cut is left, each connection meets one: the last cut is met when one more was made.
        while broker.proxy.connections - before <= times:
            read = []
            for number, (partition, end) in enumerate(ends.items()):
                groups = read_range(
                    client, partition, BEGINNING, end, poll_timeout=60.0, window_bytes=100_000
                )
                read += [record for group in groups for record in records_of(group, number)]
            assert read == expected, "a read was not exact"
            messages += len(read)
    return times, planned.in_handshake, messages, 0, f"{time.monotonic() - began:.1f}"


def _writes(
    broker: ProxiedBroker, peer: Peer, planned: _Cuts, times: int, namespace: str, *, batching: bool
) -> tuple[object, ...]:
    topic = f"persistent://{namespace}/cut-writes-{'batches' if batching else 'singles'}"
    broker.broker.admin.create_held_topic(topic, PARTITIONS)
    began, before = time.monotonic(), broker.proxy.connections
    broker.proxy.cut_next(*(planned.next() for _ in range(times)))
    options = ProducerOptions(
        batching=batching, batching_max_messages=50, compression=pb.LZ4, max_pending_messages=1000
    )
    count = 0
    with (
        Client(ClientOptions(service_url=broker.service_url)) as client,
        TopicWriter(client, TopicName.parse(topic), options) as writer,
    ):
        while broker.proxy.connections - before <= times:
            for _ in range(5):
                writer.send(columns_of(numbered(200, first=count, keys=KEYS, size=100)))
                count += 200
            writer.flush()
    seconds = time.monotonic() - began
    repeated = assert_complete(peer.read_all(topic), count, lambda record: record.key)
    assert namespace != _DEDUPLICATED or not repeated, f"{repeated} messages are stored twice"
    return times, planned.in_handshake, count, repeated, f"{seconds:.1f}"


def _ends(broker: ProxiedBroker, topic: str) -> dict[TopicName, MessageId]:
    with Client(ClientOptions(service_url=broker.broker.service_url)) as client:
        return {
            partition: last_message(client, partition)
            for partition in client.partitions(TopicName.parse(topic))
        }
