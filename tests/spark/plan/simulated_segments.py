"""A scalable topic in memory, as a broker keeps it: it splits, merges, and is cleaned up."""

from collections.abc import Iterable, Sequence

from pulsar_spark.client import Segment, TopicEnd, TopicLayout
from pulsar_spark.ids import MessageId, TopicName
from tests.spark.plan.simulated_cluster import SimulatedCluster, SimulatedTopic

HASHES = 0x10000


class ScalableTopic:
    """Segments of a cluster.

    Attributes:
        name: of the topic.
        written: the key of each message and its number among those of the key, by segment and entry.
        counts: how many messages of each key were written.

    Args:
        cluster: that it is in.
        name: of the topic.
        legacy: the partitions that it had as a classic topic.
        ledger: the number of ledgers that the cluster had before.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        name: str = "topic://public/default/st",
        legacy: Sequence[TopicName] = (),
        ledger: int = 0,
    ) -> None:
        self.name = TopicName.parse(name, scalable=True)
        self.written: dict[tuple[TopicName, MessageId], tuple[int, int]] = {}
        self.counts: dict[int, int] = {}
        self._cluster = cluster
        self._segments: dict[TopicName, tuple[range, bool]] = {}
        self._epoch = 0
        self._number = len(legacy)
        self._ledger = ledger + len(legacy)
        for partition in legacy:
            self._segments[partition] = range(HASHES), True
            cluster.topics[partition].topic_end = TopicEnd.TERMINATED
        for number in range(len(legacy) or 1):
            width = HASHES // (len(legacy) or 1)
            self._add(range(number * width, (number + 1) * width))
        self._tell()

    def named(self, number: int) -> TopicName:
        """The segment of a number."""
        return next(name for name in self._segments if name.partition == number)

    @property
    def active(self) -> list[TopicName]:
        """The segments that take messages, in the order of their hashes."""
        names = [name for name, (_, is_sealed) in self._segments.items() if not is_sealed]
        return sorted(names, key=lambda name: self._segments[name][0].start)

    @property
    def sealed(self) -> list[TopicName]:
        return [name for name, (_, is_sealed) in self._segments.items() if is_sealed]

    def write(self, keys: Iterable[int]) -> None:
        """Write one message for each key, which is its hash."""
        for key in keys:
            segment = next(name for name in self.active if key in self._segments[name][0])
            (place,) = self._cluster.topics[segment].produce()
            number = self.counts.get(key, 0)
            self.written[segment, place] = key, number
            self.counts[key] = number + 1

    def split(self, segment: TopicName) -> None:
        hashes = self._segments[segment][0]
        middle = (hashes.start + hashes.stop) // 2
        self._seal(segment)
        for half in (range(hashes.start, middle), range(middle, hashes.stop)):
            self._add(half)
        self._tell()

    def merge(self, left: TopicName, right: TopicName) -> None:
        """Merge two that are beside each other."""
        hashes = range(self._segments[left][0].start, self._segments[right][0].stop)
        self._seal(left)
        self._seal(right)
        self._add(hashes)
        self._tell()

    def clean_up(self) -> None:
        """Delete the sealed segments of which no registered subscription has anything left to read."""
        for name in self.sealed:
            found = self._cluster.topics[name]
            if all(self._has_read(found, each) for each in self._cluster.registered.get(self.name, ())):
                del self._segments[name]
                if name.is_segment:  # they are not deleted otherwise
                    self._cluster.topics.pop(name)
        self._tell()

    def _has_read(self, segment: SimulatedTopic, subscription: str) -> bool:
        mark = segment.cursors.get(subscription)  # without a cursor nobody knows
        return mark is not None and mark >= segment.end

    def _seal(self, name: TopicName) -> None:
        self._segments[name] = self._segments[name][0], True
        self._cluster.topics[name].topic_end = TopicEnd.TERMINATED

    def _add(self, hashes: range) -> None:
        self._ledger += 1  # unique in a cluster
        name = self.name.segment(hashes.start, hashes.stop - 1, self._number)
        self._number += 1
        self._segments[name] = hashes, False
        created = self._cluster.topics[name] = SimulatedTopic(self._ledger)
        for subscription in self._cluster.registered.get(self.name, ()):
            created.cursors[subscription] = created.begin

    def _tell(self) -> None:
        self._epoch += 1
        self._cluster.layouts[self.name] = TopicLayout(
            self._epoch,
            {
                name: Segment(name, is_sealed, hashes.start, hashes.stop - 1, is_legacy=not name.is_segment)
                for name, (hashes, is_sealed) in self._segments.items()
            },
            is_scalable=True,
        )
