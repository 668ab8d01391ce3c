"""Which writers of a task are open, and which are finished, when; what they do is another matter."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_spark.client import ProducerOptions
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.sink import topic_writers

TOPICS = [TopicName.parse(f"persistent://a/b/{name}") for name in "xyz"]


class Recorded:
    """A writer that says what is done to it, and a task's state in which no topic is complete yet."""

    log: list[tuple[str, TopicName]]

    def __init__(self, client: object, topic: TopicName, options: object, **more: Any) -> None:
        self.topic = topic
        self.sent: dict[object, object] = {}

    def flush(self) -> None:
        self.log.append(("flush", self.topic))

    def finish(self) -> None:
        self.log.append(("finish", self.topic))
        State.left.discard(self.topic)

    def close(self) -> None:
        self.log.append(("close", self.topic))


class State:
    """Stands for what ``DedupTask`` knows."""

    left: set[TopicName]

    @property
    def unfinished(self) -> set[TopicName]:
        return set(self.left)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, TopicName]]:
    Recorded.log = []
    State.left = set(TOPICS)
    monkeypatch.setattr(topic_writers, "TopicWriter", Recorded)
    return Recorded.log


def test_each_topic_is_finished_though_few_may_be_open(log):
    """A replay that ends early holds rows back in each; closing one for another must not drop them."""
    with topic_writers.TopicWriters(None, ProducerOptions(), 2, dedup=State()) as writers:  # type: ignore[arg-type]
        for topic in TOPICS:
            writers.of(topic)
        writers.finish()
    assert {topic for what, topic in log if what == "finish"} == set(TOPICS)
    assert not State.left
