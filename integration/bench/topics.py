"""The topics of a run: made, filled with our own writer, watched by an idle subscriber, deleted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from integration.bench import peer, shapes
from integration.bench.shapes import Shape
from integration.broker import Admin
from pulsar_spark.client import Client, TopicWriter
from pulsar_spark.ids import TopicName


@dataclass
class Topics:
    """Topics of one broker, each with a name of its own."""

    admin: Admin
    client: Client
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def service_url(self) -> str:
        """Of the broker."""
        return self.client.options.service_url

    @contextmanager
    def empty(self, partitions: int) -> Iterator[str]:
        """A new topic; one partition means a topic without partitions."""
        name = f"persistent://public/default/bench-{next(self._numbers)}"
        if partitions == 1:
            self.admin.create_topic(name)
        else:
            self.admin.create_partitioned_topic(name, partitions)
        try:
            yield name
        finally:
            if partitions == 1:
                self.admin.delete_topic(name)
            else:
                self.admin.delete_partitioned_topic(name)

    @contextmanager
    def filled(self, shape: Shape, partitions: int, count: int) -> Iterator[str]:
        """A topic of ``count`` messages, with an idle subscriber."""
        with self.empty(partitions) as name, peer.idle_subscriber(self.service_url, name):
            self.fill(name, shape, count)
            yield name

    def fill(self, name: str, shape: Shape, count: int) -> None:
        """Write the first ``count`` messages of a shape."""
        options = shapes.producer_options(shape)
        with TopicWriter(self.client, TopicName.parse(name), options) as writer:
            for columns in shapes.chunks(shape, count):
                writer.send(columns)
            writer.flush()
