"""TopicWriters: the writers of one task, up to a maximum number open at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from pulsar_spark.client import DedupTask, ProducerOptions, SentTotals, TopicWriter, VersionedSchema
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.sink.report import add_up

# Maximum topics that a task writes to at the same time: each has its own thread and window.
MAX_OPEN_TOPICS = 100


class TopicWriters:
    """The writers of one task, one for each topic; a context manager that does not flush.

    Args:
        open_writer: opens the writer of a topic, by the options of its producers.
        options: of all producers, except the schema.
        max_open: maximum number of open writers. For one more, the least recently used one is flushed and
            closed.
        dedup: the task's deduplication in a micro-batch, or None.
        schema_of: returns the schema that a topic's values were encoded with; None: values are bytes.

    Attributes:
        topics: all topics for which a writer was opened.
    """

    def __init__(
        self,
        open_writer: Callable[[TopicName, ProducerOptions], TopicWriter],
        options: ProducerOptions,
        max_open: int = MAX_OPEN_TOPICS,
        *,
        dedup: DedupTask | None = None,
        schema_of: Callable[[TopicName], VersionedSchema] | None = None,
    ) -> None:
        self._open_writer = open_writer
        self._options = options
        self._max_open = max_open
        self._dedup = dedup
        self._schema_of = schema_of
        self.topics: set[TopicName] = set()
        self._open: OrderedDict[TopicName, TopicWriter] = OrderedDict()
        self._closed: dict[TopicName, SentTotals] = {}

    def __enter__(self) -> TopicWriters:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # All are asked before one is waited for: together they take as long as one if a broker is gone.
        for writer in self._open.values():
            writer.begin_close()
        for writer in self._open.values():
            writer.close()
        if self._dedup is not None:
            self._dedup.close()

    def of(self, topic: TopicName) -> TopicWriter:
        """The writer of ``topic``; opens it if necessary."""
        if topic in self._open:
            self._open.move_to_end(topic)
            return self._open[topic]
        if len(self._open) >= self._max_open:
            oldest = next(iter(self._open))
            self.close(oldest)
            if self._dedup is not None:
                self._dedup.leave(oldest)
        self.topics.add(topic)
        options = self._options
        if self._schema_of is not None:
            options = replace(options, schema=self._schema_of(topic).schema)
        others = list(self._open.values())
        writer = self._open[topic] = self._open_writer(topic, options)
        for each in others:
            each.fit()
        return writer

    def close(self, topic: TopicName) -> None:
        """Close the writer of ``topic`` once all its messages are acknowledged. ``of`` opens it again."""
        writer = self._open[topic]
        writer.flush()
        self._closed = add_up([self._closed, writer.sent])
        del self._open[topic]
        writer.close()

    @property
    def sent(self) -> dict[TopicName, SentTotals]:
        """The totals of stored messages so far, by topic partition."""
        before = {} if self._dedup is None else self._dedup.sent
        return add_up([before, self._closed, *(writer.sent for writer in self._open.values())])

    def finish(self) -> None:
        """Wait until everything is acknowledged; no more rows come after this."""
        for writer in self._open.values():
            writer.flush()
        if self._dedup is not None:
            self._dedup.finish()
