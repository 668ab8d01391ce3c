"""Watches of a simulated cluster: of its topics, and of the layout of a scalable one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pulsar_spark.client import Closing, TopicLayout
from pulsar_spark.ids import TopicName, TopicPattern

if TYPE_CHECKING:
    from tests.spark.plan.simulated_cluster import SimulatedCluster, SimulatedTopic


class TopicChanges:
    """A TopicWatch."""

    def __init__(self, cluster: SimulatedCluster, pattern: TopicPattern) -> None:
        cluster.open_readers += 1
        self._cluster, self._seen, self._pattern = cluster, -1, pattern
        self._topics: dict[TopicName, SimulatedTopic] = {}

    def take_changes(self) -> list[TopicName] | None:
        before, self._seen = self._seen, self._cluster.changes
        old, self._topics = self._topics, dict(self._cluster.topics)
        if before == self._seen:
            return []
        if before == -1:
            return None
        named = {
            topic.base
            for topic in old.keys() | self._topics.keys()
            if old.get(topic) is not self._topics.get(topic)
        }
        return sorted(topic for topic in named if self._pattern.matches(topic))

    def take_deleted(self, topic: TopicName, within: float = 0.0) -> bool:
        found = topic in self._cluster.deleted
        self._cluster.deleted.discard(topic)
        return found

    def forget_deleted(self, topics: Iterable[TopicName]) -> None:
        self._cluster.deleted.difference_update(topics)

    def close(self) -> None:
        self._cluster.open_readers -= 1


class ScalableChanges(Closing):
    """A ScalableTopicWatch."""

    def __init__(self, cluster: SimulatedCluster, pattern: TopicPattern) -> None:
        cluster.note("watch scalable topics")
        cluster.open_readers += 1
        self._cluster, self._pattern = cluster, pattern
        self._given: list[TopicName] = []

    @property
    def changed(self) -> bool:
        return self._names != self._given

    def topics(self) -> list[TopicName]:
        self._given = self._names
        return self._given

    @property
    def _names(self) -> list[TopicName]:
        return sorted(filter(self._pattern.matches, self._cluster.layouts))

    def close(self) -> None:
        self._cluster.open_readers -= 1


class LayoutChanges:
    """A SegmentWatch."""

    def __init__(self, cluster: SimulatedCluster, topic: TopicName) -> None:
        cluster.layout(topic)
        cluster.open_readers += 1
        self._cluster, self._topic, self._given = cluster, topic, -1

    @property
    def changed(self) -> bool:
        found = self._cluster.layouts.get(self._topic)
        return found is None or found.epoch != self._given

    def layout(self) -> TopicLayout:
        found = self._cluster.layout(self._topic)
        self._given = found.epoch
        return found

    def close(self) -> None:
        self._cluster.open_readers -= 1
