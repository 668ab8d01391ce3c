"""Many transactions, and large messages in chunks: what tests do in small, in the size that users have.

Rows are compared by their digests, since the messages are larger than what a driver should collect.
"""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from integration.bench import memory
from integration.broker import Jvm, StandaloneBroker
from integration.chaos.messages import columns_of
from integration.fixtures.spark import PulsarInSpark, drain
from integration.helpers.local_spark import local_spark
from integration.helpers.peer import Peer, Record
from integration.helpers.raw import RawConnection, RawProducer
from integration.helpers.transactions import SETTINGS, Coordinator
from pulsar_spark.client import Client, ClientOptions, ProducerOptions, TopicWriter
from pulsar_spark.ids import TopicName
from pulsar_spark.wire import pulsar_pb2 as pb

_NAMESPACE = "persistent://public/default"
_PRODUCERS = 3
_OF_EACH = 7
_CUT_OFF = 10
_WRITTEN = 12
_SEND_TIMEOUT = 300.0
_MB = 1_000_000
_HUGE = 200 * _MB
_CAP = "2"  # messages a micro-batch, so that batches end anywhere


def large(seed: int, times: int) -> Iterable[tuple[object, ...]]:
    """``times`` transactions, then the large messages; the rows of the chaos table."""
    chance = random.Random(seed)
    settings = {"spark.log.level": "OFF", "spark.driver.memory": "4g"}
    jvm = Jvm(heap="2g", direct_memory="2g", optimize=True)
    with StandaloneBroker(SETTINGS, jvm=jvm) as broker, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = local_spark(folder, "large", settings)
        here = PulsarInSpark(spark, broker.service_url)
        yield "what", "messages", "missing or doubled", "figure"
        yield transactions(here, broker, folder, times)
        yield chunks(here, broker, folder, chance)
        yield written_chunks(broker, chance)
        yield huge(here, spark, broker, chance)
        spark.stop()


def transactions(
    here: PulsarInSpark, broker: StandaloneBroker, folder: Path, count: int
) -> tuple[object, ...]:
    """Every second one is aborted, the last among them: the topic ends in a marker."""
    topic, committed = f"{_NAMESPACE}/transactions", []
    broker.admin.create_topic(topic)
    options = ClientOptions(service_url=broker.service_url)
    with RawConnection(broker.service_url) as connection, Client(options) as client:
        coordinator, producer = Coordinator(client), RawProducer(connection, topic)
        for number in range(count):
            txn = coordinator.begin([topic])
            producer.send(b"%d" % number, txn=txn)
            if number % 2:
                coordinator.abort(txn)
            else:
                coordinator.commit(txn)
                committed.append(b"%d" % number)
    for turn in range(2):  # the first one starts Spark's workers
        sink = Digests()
        query = drain(here.stream(topic), sink, folder / f"transactions-{turn}")
        sink.compare(committed)
    seconds = max(progress.durationMs["triggerExecution"] for progress in query.recentProgress) / 1000
    return f"{count} transactions, half aborted", len(committed), 0, f"longest batch {seconds:.1f} s"


def chunks(
    here: PulsarInSpark, broker: StandaloneBroker, folder: Path, chance: random.Random
) -> tuple[object, ...]:
    """Messages of 1 to 20 MB from several producers at once, among others that are cut off halfway."""
    topic = f"{_NAMESPACE}/chunks"
    broker.admin.create_held_topic(topic)
    values = [
        [chance.randbytes(chance.randint(1, 20) * _MB) for _ in range(_OF_EACH)] for _ in range(_PRODUCERS)
    ]

    def write(number: int) -> None:
        with Peer(broker.service_url) as peer, RawConnection(broker.service_url) as connection:
            producer = RawProducer(connection, topic)
            for turn, value in enumerate(values[number]):
                if number * _OF_EACH + turn < _CUT_OFF:
                    _cut_off(producer, f"{number}-{turn}")
                peer.produce(topic, [Record(value)], chunking_enabled=True)

    with ThreadPoolExecutor() as threads:
        list(threads.map(write, range(_PRODUCERS)))
    sink = Digests()
    query = drain(here.stream(topic, maxMessagesPerTrigger=_CAP), sink, folder / "chunks")
    wanted = [value for some in values for value in some]
    sink.compare(wanted)
    batches = sum(progress.numInputRows > 0 for progress in query.recentProgress)
    what = f"1 to 20 MB in chunks, {_PRODUCERS} producers, {_CUT_OFF} cut off"
    return what, len(wanted), 0, f"{batches} batches"


def written_chunks(broker: StandaloneBroker, chance: random.Random) -> tuple[object, ...]:
    """Messages of 1 to 50 MB that our client writes, compressed where they can be, read by the C++ client."""
    topic, sent = f"{_NAMESPACE}/written-chunks", Counter[str]()
    options = ProducerOptions(batching=False, chunking=True, compression=pb.LZ4, send_timeout=_SEND_TIMEOUT)
    with (
        Client(ClientOptions(service_url=broker.service_url)) as client,
        TopicWriter(client, TopicName.parse(topic), options) as writer,
    ):
        for number in range(_WRITTEN):
            size = (1 if number == 0 else 50 if number == 1 else chance.randint(1, 50)) * _MB
            value = chance.randbytes(size) if number % 2 else chance.randbytes(1000) * (size // 1000)
            sent[hashlib.sha256(value).hexdigest()] += 1
            writer.send(columns_of([Record(value, f"key-{number}")]))
        writer.flush()
    with Peer(broker.service_url) as peer:
        found = Counter(hashlib.sha256(record.value or b"").hexdigest() for record in peer.read_all(topic))
    assert found == sent
    return "1 to 50 MB in LZ4, written in chunks, read by C++", _WRITTEN, 0, ""


def huge(
    here: PulsarInSpark, spark: SparkSession, broker: StandaloneBroker, chance: random.Random
) -> tuple[object, ...]:
    """One message; the worker's memory is compared with its size."""
    topic, value = f"{_NAMESPACE}/huge", chance.randbytes(_HUGE)
    broker.admin.create_held_topic(topic)
    with Peer(broker.service_url) as peer:
        peer.produce(topic, [Record(value)], chunking_enabled=True)
    idle = memory.idle_mib(spark)
    memory.set_peaks_back()
    (row,) = _digests(here.read(topic)).collect()
    assert row.digest == hashlib.sha256(value).hexdigest()
    times = (memory.peak_mib() - idle) * 2**20 / _HUGE
    assert times < 3, f"a worker took {times:.1f} times the message"
    return f"one of {_HUGE // _MB} MB", 1, 0, f"a worker's memory: {times:.1f} x its size"


class Digests:
    """An idempotent sink for foreachBatch that keeps the digests of values."""

    def __init__(self) -> None:
        self._batches: dict[int, list[str]] = {}

    def __call__(self, batch: DataFrame, number: int) -> None:
        self._batches[number] = [row.digest for row in _digests(batch).collect()]

    def compare(self, values: Iterable[bytes]) -> None:
        """Raise AssertionError unless each value came once."""
        found = Counter(digest for digests in self._batches.values() for digest in digests)
        wanted = Counter(hashlib.sha256(value).hexdigest() for value in values)
        missing, doubled = wanted - found, found - wanted
        assert not missing, f"{missing.total()} of {wanted.total()} messages are missing"
        assert not doubled, f"{doubled.total()} rows too many"


def _digests(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("sha2(value, 256) AS digest")


def _cut_off(producer: RawProducer, uuid: str) -> None:
    """Leave the first half of a chunked message."""
    for number in range(2):
        producer.send(
            b"x" * _MB, uuid=uuid, chunk_id=number, num_chunks_from_msg=4, total_chunk_msg_size=4 * _MB
        )
