"""TopicWriters: the writers of one task, up to a maximum number open at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from pulsar_spark.client import (
    NO_USER_CODE,
    Client,
    DedupTask,
    ProducerOptions,
    SentTotals,
    TaskPlace,
    TopicWriter,
    Transaction,
    UserCode,
    VersionedSchema,
    task_memory,
)
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.sink.report import add_up

# Maximum topics that a task writes to at the same time: each has its own thread and window.
MAX_OPEN_TOPICS = 100


class TopicWriters:
    """The writers of one task, one for each topic; a context manager that does not flush.

    Args:
        client: client of the cluster.
        options: options of all producers.
        max_open: maximum number of open writers. For one more, the least recently used one is flushed and
            closed.
        transaction: as each :class:`TopicWriter` takes it, like the three that follow.
        dedup: see above.
        place: see above.
        code: see above.
        schema_of: returns the schema that a topic's values were encoded with; None: values are bytes.

    Attributes:
        topics: all topics for which a writer was opened.
    """

    def __init__(
        self,
        client: Client,
        options: ProducerOptions,
        max_open: int = MAX_OPEN_TOPICS,
        *,
        transaction: Transaction | None = None,
        dedup: DedupTask | None = None,
        place: TaskPlace | None = None,
        code: UserCode = NO_USER_CODE,
        schema_of: Callable[[TopicName], VersionedSchema] | None = None,
    ) -> None:
        self._code = code
        self._schema_of = schema_of
        self._client = client
        self._options = options
        self._memory = task_memory(options)
        self._max_open = max_open
        self._transaction = transaction
        self._dedup = dedup
        self._place = place
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
        writer = self._open[topic] = TopicWriter(
            self._client,
            topic,
            options,
            transaction=self._transaction,
            code=self._code,
            dedup=self._dedup,
            place=self._place,
            memory=self._memory,
        )
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
