"""A scalable topic on the fake broker, and its writers."""

from collections import defaultdict

import pyarrow as pa

from pulsar_spark.client import SegmentWriter
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.writing.routing import raw_hashes
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.codecs import decompress
from tests.client.clients import columns, producing
from tests.client.writing.topic_writers import LATE
from tests.fake_topics import section_of, split_section, values_of
from tests.protocol.test_segments import segment

TOPIC = TopicName.parse("topic://public/default/st", scalable=True)
KEYS = [b"key-%d" % number for number in range(9)]


class Segments:
    """The segments of the topic on a fake broker; `partitions` had the first numbers before."""

    def __init__(self, broker, count=1, *, has_buckets=False, partitions=0):
        self._broker, self._has_buckets, self._partitions = broker, has_buckets, partitions
        width = 0x10000 // count
        self.all, self._epoch = [], -1
        for number in range(count):
            self._add(number * width, (number + 1) * width - 1 if number < count - 1 else 0xFFFF)
        self.publish()

    def _add(self, first, last):
        added = segment(self._partitions + len(self.all), first, last)
        added.created_at_epoch = self._epoch + 1
        if self._has_buckets:
            added.entry_bucket_splits.extend([0x4000, 0x9000])
        self.all.append(added)

    @property
    def active(self):
        return sorted(
            (each for each in self.all if each.state == pb.ACTIVE), key=lambda each: each.hash_start
        )

    def name(self, each):
        return TOPIC.segment(each.hash_start, each.hash_end, each.segment_id)

    def topic(self, each):
        return self._broker.topics[str(self.name(each))]

    def seal(self, *sealed):
        """Terminates segments; the layout does not say so yet."""
        for each in sealed:
            each.state, each.sealed_at_epoch = pb.SEALED, self._epoch + 1
            self._broker.terminate(self.topic(each))

    def split(self, each):
        self.seal(each)
        middle = (each.hash_start + each.hash_end) // 2
        self._add(each.hash_start, middle)
        self._add(middle + 1, each.hash_end)

    def split_first(self):
        """Splits the first active segment, and tells the writers."""
        self.split(self.active[0])
        self.publish()

    def merge(self, left, right):
        self.seal(left, right)
        self._add(left.hash_start, right.hash_end)

    def rebucket(self, each):
        self.seal(each)
        self._add(each.hash_start, each.hash_end)

    def delete(self, sealed):
        """Deletes a segment, as the brokers' clean-up does; the layout does not say so yet."""
        with self._broker.changed:
            self._broker.close_all(str(self.name(sealed)))
            del self._broker.topics[str(self.name(sealed))]
        self.all.remove(sealed)

    def let_others_write(self, draw):
        """Another program writes up to two messages, each to any active segment."""
        for _ in range(draw.randint(0, 2)):
            self._broker.publish(self.name(draw.choice(self.active)), section_of(b"other"))

    def change(self, draw):
        """Changes a segment or two, but not the layout."""
        active = self.active
        at = draw.randrange(len(active))
        if at + 1 < len(active) and draw.random() < 0.5:
            self.merge(*active[at : at + 2])
        elif draw.random() < 0.2:
            self.rebucket(active[at])
        else:
            self.split(active[at])

    def publish(self):
        self._epoch += 1
        self._broker.lay_out(str(TOPIC), pb.ScalableTopicDAG(epoch=self._epoch, segments=self.all))

    def values(self):
        """Stored values by segment, the oldest first."""
        return [
            [value for entry in self.topic(each).entries for value in values_in(entry)] for each in self.all
        ]

    def entries(self):
        return [entry for each in self.all for entry in self.topic(each).entries]


def values_in(entry):
    """The values of an entry, which may be compressed."""
    metadata, payload = split_section(entry.section)
    if metadata.compression != pb.NONE:
        payload = bytes(decompress(metadata.compression, payload, metadata.uncompressed_size, 1 << 20))
    return values_of(metadata, payload)


def open_segments(client, *, delay=LATE, place=None, dedup=None, code=None, **options):
    given = {} if code is None else {"code": code}
    options |= {"batching_max_publish_delay": delay}
    return SegmentWriter(client, TOPIC, producing(**options), place=place, dedup=dedup, **given)


def keyed(first, count, keys=KEYS):
    """Rows with values `key:number`, whose numbers ascend by key."""
    rows = [(keys[at % len(keys)], at // len(keys)) for at in range(first, first + count)]
    return columns([b"%s:%d" % row for row in rows], key=pa.array([key for key, _ in rows], pa.binary()))


def assert_once_in_order(segments, count):
    """Each row is in a segment of its key's hash, once, after all earlier rows of its key."""
    by_key = defaultdict(list)
    for each, values in zip(segments.all, segments.values(), strict=True):
        for value in values:
            key, _, number = value.partition(b":")
            if number:
                hashed = int(raw_hashes(pa.array([key], pa.binary()))[0]) >> 16
                assert each.hash_start <= hashed <= each.hash_end
                by_key[key].append(int(number))
    for key, numbers in by_key.items():
        assert numbers == list(range(len(numbers))), key
    assert sum(map(len, by_key.values())) == count
