"""Both ends alone: Spark's transport and the broker at once, with all that is made of messages left out.

Entries are fetched and thrown away, or sent as they were made beforehand, for as many rows as Spark gets or
gives. So this is about what a client would reach on these cores for which a message costs nothing; about,
because each task asks for its topic and its end by itself, which the source's planner does for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import lru_cache
from itertools import cycle, islice

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, InputPartition, WriterCommitMessage

from integration.bench import shapes
from integration.bench.shapes import SHAPES, Shape
from integration.bench.transport import Repeat, Rows, Transport, repeated_batch
from pulsar_spark.client import ClientOptions, Consumer, SubscriptionOptions, shared_client
from pulsar_spark.client.writing.producer import Producer
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.writing.batcher import Batch, Batcher
from pulsar_spark.wire.columns.entry_messages import EncodedSingle, encode_batch_messages, encode_singles
from tests.ranges import read_range

_BEGINNING = MessageId(-1, -1)
_POLL_TIMEOUT = 60.0


class Ends(Transport):
    """Options: those of ``Transport``, ``service.url`` and ``topic``."""

    @classmethod
    def name(cls) -> str:
        return "bench_ends"

    def streamReader(self, schema: object) -> Repeat:  # noqa: N802
        return _Fetch(self.options)

    def writer(self, schema: object, overwrite: bool) -> DataSourceArrowWriter:
        return _Send(self.options["service.url"], self.options["topic"], SHAPES[self.options["shape"]])


class _Fetch(Repeat):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows)
        batch = repeated_batch(self.shape)
        fetched = given = 0
        client = shared_client(ClientOptions(service_url=self.options["service.url"]))
        topic = client.partitions(TopicName.parse(self.options["topic"]))[partition.number]
        options = SubscriptionOptions(name="bench-end", durable=False)
        with Consumer(client, topic, options) as consumer:
            end = consumer.last_message_id().last.whole_entry
        groups = read_range(client, topic, _BEGINNING, end, poll_timeout=_POLL_TIMEOUT)
        for entries in groups:
            fetched += int(entries.messages.clip(1).sum())
            while fetched - given >= batch.num_rows:
                yield batch
                given += batch.num_rows
        yield batch.slice(0, fetched - given)


class _Send(DataSourceArrowWriter):
    def __init__(self, service_url: str, topic: str, shape: Shape) -> None:
        self._service_url = service_url
        self._topic = topic
        self._shape = shape

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        made = _made_batches(self._shape) if self._shape.batching else []
        each, batches = (made[0].messages if made else 1), cycle(made)
        client = shared_client(ClientOptions(service_url=self._service_url))
        topics = client.partitions(TopicName.parse(self._topic))
        options = shapes.producer_options(self._shape)
        taken = sent = 0
        with ExitStack() as stack:
            producers = [Producer(client, topic, options, len(topics)) for topic in topics]
            for producer in producers:
                stack.callback(producer.close)
            turns = cycle(producers)
            for batch in iterator:
                taken += batch.num_rows
                count = (taken - sent) // each
                sent += count * each
                if made:
                    next(turns).send_batches(list(islice(batches, count)))
                else:
                    next(turns).send_singles([_made_single(self._shape)] * count)
            for producer in producers:
                producer.flush()
        return WriterCommitMessage()


@lru_cache(maxsize=1)
def _made_batches(shape: Shape) -> list[Batch]:
    """Batches of equal size as our sink makes them, not compressed: the producer does that, as for its rows.

    They are many, because the same block again and again is compressed faster than one after the other.
    """
    options = shapes.producer_options(shape)
    encoded = encode_batch_messages(shapes.columns(shape, 0, shapes.CHUNK))
    batcher = Batcher(options.batching_max_messages, options.batching_max_bytes, 1.0)
    first, *others = batcher.add(encoded.buffer, encoded.offsets, 0.0)
    payloads = [b"".join(batch.parts) for batch in (first, *others) if batch.messages == first.messages]
    return [Batch((payload,), first.messages, len(payload)) for payload in payloads]


@lru_cache(maxsize=1)
def _made_single(shape: Shape) -> EncodedSingle:
    (single,) = encode_singles(shapes.columns(shape, 0, 1))
    return single
