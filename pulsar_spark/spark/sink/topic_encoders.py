"""The schemas that rows are written with: chosen by the driver, or by a task for topics that rows name.

A micro-batch that is run again must give the same bytes. So if the option names the topic, the driver chooses
its schema before any row is written. If each row names its topic, tasks choose, once per topic, and all tasks
choose the same. Somebody may register a new version between two runs. A task that finds rows of the earlier
run then returns to the version of those rows (``ReplayEncoders``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from uuid import uuid4

from pulsar_spark.client import (
    Client,
    DedupTask,
    RowType,
    SchemaType,
    ValueEncoder,
    VersionedSchema,
    kind_of_values,
    row_encoder,
    schema_of_rows,
    shared_client,
)
from pulsar_spark.errors import OptionError, SchemaError, UnsupportedError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.sink import SinkOptions
from pulsar_spark.spark.rows.write import MessageShape
from pulsar_spark.spark.rows.write_values import SinkFormat
from pulsar_spark.spark.sink.topic_writers import TopicWriters

_log = logging.getLogger(__name__)

# The column that the source reads keys of a KEY_VALUE schema into.
_KEY = "key"


class TopicEncoders:
    """The encoders that turn the rows of one task into values of their topics.

    Args:
        rows: type of the rows.
        pinned: schemas by topic.
        choose: returns the schema of a topic that is not in ``pinned``; called once per topic.
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
        """The schema of the topic's rows; raises the errors of :func:`schema_of_rows`."""
        if topic not in self._schemas:
            self._schemas[topic] = self._choose(topic)
        return self._schemas[topic]

    def of(self, topic: TopicName) -> ValueEncoder:
        """The encoder of the topic's rows; raises the errors of :func:`schema_of_rows`."""
        if topic not in self._encoders:
            self._encoders[topic] = row_encoder(self.schema(topic).schema, self._rows)
        return self._encoders[topic]

    def replace(self, topic: TopicName, schema: VersionedSchema) -> None:
        """Write the topic's rows with another schema; raises SchemaError if they do not fit it."""
        self._encoders[topic] = row_encoder(schema.schema, self._rows)
        self._schemas[topic] = schema


class ReplayEncoders:
    """The encoders of a task that may be a replay: they use the schema versions of the earlier run.

    Args:
        client: client of the cluster.
        encoders: encoders of the task.
        writers: writers of the task; a topic's writer is opened before its rows are encoded.
        dedup: deduplication of the task; it finds the stored rows.
    """

    def __init__(
        self, client: Client, encoders: TopicEncoders, writers: TopicWriters, dedup: DedupTask
    ) -> None:
        self._client = client
        self._encoders = encoders
        self._writers = writers
        self._dedup = dedup
        self._known: set[TopicName] = set()
        self._load = uuid4().hex  # schemas cached in the process may be those of a topic deleted since

    def of(self, topic: TopicName) -> ValueEncoder:
        """The encoder of the topic's rows; also raises the errors of opening a writer."""
        if topic not in self._known:
            self._writers.of(topic)
            version = self._dedup.stored_version(topic)
            if version is not None and version != self._encoders.schema(topic).version:
                self._go_back(topic, version)
            self._known.add(topic)
        return self._encoders.of(topic)

    def _go_back(self, topic: TopicName, version: int) -> None:
        """Write with an older schema version.

        If it cannot be loaded, the comparison finds that the stored rows differ.
        """
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
    """The encoders of a task; None if values are bytes without a schema."""
    if isinstance(shape.value, str):
        return None
    rows = shape.value.type
    return TopicEncoders(rows, pinned, lambda topic: _choose(client, options, rows, topic))


def with_topic_format(options: SinkOptions, client: Client) -> SinkOptions:
    """The options with the format of the topic's schema instead of COLUMNS.

    Raises:
        OptionError: the topic has no schema.
        SchemaError: its schema is malformed.
        UnsupportedError: values of its schema are not written.
        BrokerError: no broker answered within the client's timeout.
    """
    topic = options.topic
    assert topic is not None  # the options are checked
    latest = client.schemas.latest(topic)
    if latest is None:
        raise OptionError(
            f"valueFormat=columns writes by the topic's schema, but topic {topic} has none, or does not "
            "exist",
            advice="Set valueFormat to avro, json or primitive: the first write then registers a schema",
        )
    values = replace(options.values, format=SinkFormat(kind_of_values(latest.schema).value))
    if latest.schema.type is SchemaType.KEY_VALUE:
        values = replace(values, key_columns=values.key_columns or (_KEY,))
    return replace(options, values=values)


def pinned_schemas(options: SinkOptions, shape: MessageShape) -> dict[TopicName, VersionedSchema]:
    """Choose on the driver the schema that rows are written with, and register it if it is new.

    Returns:
        The schema of the topic that the option names; empty if rows name their topics or have no schema.

    Raises:
        PulsarError: as raised by :func:`schema_of_rows`.
    """
    if options.topic is None or isinstance(shape.value, str):
        return {}
    client = shared_client(options.client)
    return {options.topic: _choose(client, options, shape.value.type, options.topic)}


def _choose(client: Client, options: SinkOptions, rows: RowType, topic: TopicName) -> VersionedSchema:
    may_register, is_encrypted = options.values.may_register, options.encryption is not None
    return schema_of_rows(client, topic, rows, may_register=may_register, is_encrypted=is_encrypted)
