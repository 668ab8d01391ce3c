"""By which schemas rows are written: pinned on the driver, or chosen by a task that meets a topic.

A micro-batch that is run again must give the same bytes. So the driver chooses, before any row, where the
option names the topic. Where each row names its own, tasks choose, each topic once; they come to the same.
Others may register a version between two runs: a task that finds rows of the earlier run goes back to the
version of those (``ReplayEncoders``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from uuid import uuid4

from pulsar_spark.client import (
    Client,
    DedupTask,
    RowType,
    ValueEncoder,
    VersionedSchema,
    row_encoder,
    schema_of_rows,
    shared_client,
)
from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.sink import SinkOptions
from pulsar_spark.spark.rows.write import MessageShape
from pulsar_spark.spark.sink.topic_writers import TopicWriters

_log = logging.getLogger(__name__)


class TopicEncoders:
    """What makes the rows of one task values of their topics.

    Args:
        rows: what they are.
        pinned: schemas by topic.
        choose: gives the schema of a topic that is not among those; asked once for each.
    """

    def __init__(
        self,
        rows: RowType,
        pinned: Mapping[TopicName, VersionedSchema],
        choose: Callable[[TopicName], VersionedSchema],
    ) -> None:
        self._rows = rows
        self._choose = choose
        self._schemas = dict(pinned)
        self._encoders: dict[TopicName, ValueEncoder] = {}

    def schema(self, topic: TopicName) -> VersionedSchema:
        """The schema that the topic's rows are written by; raises what :func:`schema_of_rows` does."""
        if topic not in self._schemas:
            self._schemas[topic] = self._choose(topic)
        return self._schemas[topic]

    def of(self, topic: TopicName) -> ValueEncoder:
        """The encoder of the topic's rows; raises what :func:`schema_of_rows` does."""
        if topic not in self._encoders:
            self._encoders[topic] = row_encoder(self.schema(topic).schema, self._rows)
        return self._encoders[topic]

    def replace(self, topic: TopicName, schema: VersionedSchema) -> None:
        """Write the topic's rows by another schema; raises SchemaError if they do not fit it."""
        self._encoders[topic] = row_encoder(schema.schema, self._rows)
        self._schemas[topic] = schema


class ReplayEncoders:
    """The encoders of a task that may be run again: by the versions that an earlier run has written by.

    Args:
        client: where to connect.
        encoders: of the task.
        writers: of the task; a topic's is opened before its rows are encoded.
        dedup: of the task; it finds what is stored.
    """

    def __init__(
        self, client: Client, encoders: TopicEncoders, writers: TopicWriters, dedup: DedupTask
    ) -> None:
        self._client = client
        self._encoders = encoders
        self._writers = writers
        self._dedup = dedup
        self._known: set[TopicName] = set()
        self._load = uuid4().hex  # what is kept in the process may be of a topic that was deleted since

    def of(self, topic: TopicName) -> ValueEncoder:
        """The encoder of the topic's rows; raises what opening a writer does, too."""
        if topic not in self._known:
            self._writers.of(topic)
            version = self._dedup.stored_version(topic)
            if version is not None and version != self._encoders.schema(topic).version:
                self._go_back(topic, version)
            self._known.add(topic)
        return self._encoders.of(topic)

    def _go_back(self, topic: TopicName, version: int) -> None:
        """Write by an older version. If that cannot be had, what is stored is found not to be the same."""
        schema = self._client.schemas.at(topic, version, load=self._load)
        if schema is None:
            return
        try:
            self._encoders.replace(topic, VersionedSchema(version, schema))
        except (SchemaError, UnsupportedError) as error:
            _log.warning(
                "%s: rows are no longer written with version %d of the schema: %s", topic, version, error
            )
            return
        _log.info("%s: rows are written with version %d of the schema, as in an earlier run", topic, version)
        self._writers.close(topic)


def topic_encoders(
    client: Client, options: SinkOptions, shape: MessageShape, pinned: Mapping[TopicName, VersionedSchema]
) -> TopicEncoders | None:
    """The encoders of a task; None where values are bytes without a schema."""
    if isinstance(shape.value, str):
        return None
    rows = shape.value.type
    return TopicEncoders(rows, pinned, lambda topic: _choose(client, options, rows, topic))


def pinned_schemas(options: SinkOptions, shape: MessageShape) -> dict[TopicName, VersionedSchema]:
    """Choose, on the driver, by which schema rows are written, and register it where it is new.

    Returns:
        The schema of the topic that the option names; nothing where rows name theirs, or have no schema.

    Raises:
        PulsarError: what :func:`schema_of_rows` raises.
    """
    if options.topic is None or isinstance(shape.value, str):
        return {}
    client = shared_client(options.client)
    return {options.topic: _choose(client, options, shape.value.type, options.topic)}


def _choose(client: Client, options: SinkOptions, rows: RowType, topic: TopicName) -> VersionedSchema:
    may_register, is_encrypted = options.values.may_register, options.encryption is not None
    return schema_of_rows(client, topic, rows, may_register=may_register, is_encrypted=is_encrypted)
