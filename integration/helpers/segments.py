"""A scalable topic on a real broker: its segments change, and messages are written while they do.

Keys choose segments by a hash of this module's own. Clients of Pulsar 5 have others; a reader does not care.
"""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Sequence
from types import TracebackType

from integration.broker import Admin
from integration.broker.waiting import wait_until
from integration.helpers.raw import RawConnection, RawProducer
from pulsar_spark.client import Client, ClientOptions, SegmentWatch
from pulsar_spark.ids import TopicName

_MAX_ACTIVE = 5  # segments


def chosen_change(rng: random.Random, active: Sequence[object]) -> str:
    """Which segment to split or which two to merge, as the admin service takes it.

    ``active`` are the numbers of those that take messages, in the order of their hashes.
    """
    if len(active) < 2 or (len(active) < _MAX_ACTIVE and rng.random() < 0.6):
        return f"split/{rng.choice(active)}"
    left = rng.randrange(len(active) - 1)
    return f"merge/{active[left]}/{active[left + 1]}"


class ScalableTopic:
    """A new scalable topic, and a writer of it; a context manager.

    Attributes:
        name: of the topic.
        counts: how many messages of each key were written; their values are `key:number`.
    """

    def __init__(self, service_url: str, admin: Admin, local: str, *, segments: int = 1) -> None:
        self.name = TopicName("topic", "public", "default", local)
        self.counts: dict[str, int] = {}
        self._url, self._admin = service_url, admin
        self._place = f"scalable/public/default/{local}"
        if segments:
            admin.request("PUT", f"{self._place}?numInitialSegments={segments}", {})
        self._client = Client(ClientOptions(service_url=service_url))
        self._watch = SegmentWatch(self._client, self.name)
        self._connection = RawConnection(service_url)
        self._producers: dict[TopicName, RawProducer] = {}
        self._lock = threading.Lock()  # a message on its way to a segment that ends may be stored, or not

    def __enter__(self) -> ScalableTopic:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.__exit__(kind, error, trace)
        self._watch.close()
        self._client.close()

    @property
    def active(self) -> list[TopicName]:
        """The segments that take messages, in the order of their hashes."""
        segments = self._watch.layout().segments.values()
        return [
            each.topic for each in sorted(segments, key=lambda each: each.first_hash) if not each.is_sealed
        ]

    @property
    def segments(self) -> list[TopicName]:
        """All segments, the oldest first."""
        return list(self._watch.layout().segments)

    def write(self, key: str) -> None:
        """Write the next message of a key."""
        with self._lock:
            number, segment = self.counts.get(key, 0), self._segment_of(key)
            if segment not in self._producers:
                self._producers[segment] = RawProducer(self._connection, str(segment))
            self._producers[segment].send(f"{key}:{number}".encode(), partition_key=key)
            self.counts[key] = number + 1

    def change(self, rng: random.Random) -> None:
        """Split a segment or merge two."""
        self._change(chosen_change(rng, [segment.partition for segment in self.active]))

    def split(self, segment: TopicName) -> None:
        self._change(f"split/{segment.partition}")

    def merge(self, left: TopicName, right: TopicName) -> None:
        self._change(f"merge/{left.partition}/{right.partition}")

    def _change(self, what: str) -> None:
        with self._lock:
            before = set(self.active)
            self._admin.request("POST", f"{self._place}/{what}")
            wait_until(lambda: set(self.active) != before)
            # The broker closes producers of the segment, and says so at any time.
            self._connection.__exit__(None, None, None)
            self._connection = RawConnection(self._url)
            self._producers.clear()

    def subscriptions(self) -> list[str]:
        """The subscriptions that are registered on the topic."""
        return list(self._admin.request("GET", f"{self._place}/stats")["subscriptions"])

    def _segment_of(self, key: str) -> TopicName:
        hashed = zlib.crc32(key.encode()) & 0xFFFF
        for segment in self._watch.layout().segments.values():
            if not segment.is_sealed and segment.first_hash <= hashed <= segment.last_hash:
                return segment.topic
        raise AssertionError("the active segments do not take all keys")
