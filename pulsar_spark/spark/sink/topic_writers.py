"""TopicWriters: the writers of one task, with a maximum number of open writers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType

from pulsar_spark.client import (
    IN_PARALLEL,
    DedupTask,
    MessageColumns,
    ProducerOptions,
    SentTotals,
    TopicWriter,
    VersionedSchema,
    close_all,
    raise_error_of,
    run_all,
)
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.sink.report import add_up

# Maximum topics that a task writes to at the same time, because each has a thread and pending messages.
MAX_OPEN_TOPICS = 100


class TopicWriters:
    """The writers of one task, one for each topic; a context manager that does not flush.

    Args:
        options: options of all producers, except the schema.
        max_open: maximum number of open writers; the least recently used writers are closed after a flush.
        in_parallel: maximum number of topics that are opened or written to at the same time; 1 if user code
            must be called from one thread.
        schema_of: function that returns the schema of a topic's encoded values; None: values are bytes.

    Attributes:
        topics: topics for which a writer was opened, in order.
        in_parallel: maximum number of topics for one ``send``.
    """

    def __init__(
        self,
        open_writer: Callable[[TopicName, ProducerOptions], TopicWriter],
        options: ProducerOptions,
        max_open: int = MAX_OPEN_TOPICS,
        *,
        in_parallel: int = IN_PARALLEL,
        dedup: DedupTask | None = None,
        schema_of: Callable[[TopicName], VersionedSchema] | None = None,
    ) -> None:
        self._open_writer = open_writer
        self._options = options
        self._max_open = max_open
        self._dedup = dedup
        self._schema_of = schema_of
        self.topics: dict[TopicName, None] = {}
        self.in_parallel = min(in_parallel, max_open)
        self._open: OrderedDict[TopicName, TopicWriter] = OrderedDict()
        self._closed: dict[TopicName, SentTotals] = {}

    def __enter__(self) -> TopicWriters:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_all(self._open.values())
        if self._dedup is not None:
            self._dedup.close()

    def of(self, topic: TopicName) -> TopicWriter:
        """Returns the writer of ``topic``; opens it if necessary."""
        self.open([topic])
        return self._open[topic]

    def open(self, topics: Sequence[TopicName]) -> None:
        """Opens the missing writers of at most ``max_open`` topics.

        The first topic is opened before the other topics, so that copies of a task exclude each other.
        Otherwise each copy could wait for a topic that another copy has opened.
        """
        missing = [topic for topic in topics if topic not in self._open]
        if missing:
            unused = [topic for topic in self._open if topic not in topics]
            closing = unused[: max(0, len(self._open) + len(missing) - self._max_open)]
            self.close(*closing)
            if self._dedup is not None:
                for topic in closing:
                    self._dedup.leave(topic)
            self.topics |= dict.fromkeys(missing)
            for some in (missing[:1], missing[1:]):
                self._run([partial(self._open_one, topic) for topic in some])
            for writer in self._open.values():
                writer.fit()
        for topic in topics:
            self._open.move_to_end(topic)

    def _open_one(self, topic: TopicName) -> None:
        options = self._options
        if self._schema_of is not None:
            options = replace(options, schema=self._schema_of(topic).schema)
        self._open[topic] = self._open_writer(topic, options)

    def send(self, messages: Sequence[tuple[TopicName, MessageColumns]]) -> None:
        """Sends the messages of at most ``in_parallel`` topics; raises the errors of ``TopicWriter``."""
        self.open([topic for topic, _ in messages])
        self._run([partial(self._open[topic].send, columns) for topic, columns in messages])

    def close(self, *topics: TopicName) -> None:
        """Closes the writers of ``topics`` once all messages are acknowledged. ``of`` opens them again."""
        writers = [self._open[topic] for topic in topics]
        self._run([writer.flush for writer in writers])
        for topic, writer in zip(topics, writers, strict=True):
            sent = writer.sent
            before = {each: self._closed[each] for each in sent.keys() & self._closed.keys()}
            self._closed |= add_up([before, sent])
            del self._open[topic]
        close_all(writers)

    def _run(self, calls: Sequence[Callable[[], None]]) -> None:
        raise_error_of(run_all(calls, self.in_parallel))

    @property
    def sent(self) -> dict[TopicName, SentTotals]:
        """Returns the totals of stored messages so far, by topic partition."""
        before = {} if self._dedup is None else self._dedup.sent
        return add_up([before, self._closed, *(writer.sent for writer in self._open.values())])

    def finish(self) -> None:
        """Waits until all messages are acknowledged; no more rows may follow."""
        self._run([writer.flush for writer in self._open.values()])
        if self._dedup is not None:
            self._dedup.finish()
