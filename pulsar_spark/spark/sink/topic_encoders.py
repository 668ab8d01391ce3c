"""The schemas of written rows: chosen by the driver, or by a task for topics that rows name.

A replay of a micro-batch must produce the same bytes. So if the option ``topic`` is set, the driver chooses
the topic's schema before any row is written. If each row names its topic, each task chooses the schema once
per topic, and all tasks choose the same one. Another program may register a new version before a replay. So
a task that finds rows of the earlier run uses the version of these rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from uuid import uuid4

import pyarrow as pa

from pulsar_spark.client import (
    Client,
    DedupTask,
    PartKind,
    ReaderSchema,
    RowType,
    SchemaType,
    ValueEncoder,
    VersionedSchema,
    kind_of_values,
    now,
    raise_error_of,
    row_encoder,
    run_all,
    schema_of_rows,
    shared_client,
)
from pulsar_spark.errors import OptionError, PulsarError, SchemaError, UnsupportedError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.sink import SinkOptions
from pulsar_spark.spark.options.values import given_schema
from pulsar_spark.spark.processes import is_first_to_say
from pulsar_spark.spark.rows.schema import ValueFormat
from pulsar_spark.spark.rows.write import MessageShape
from pulsar_spark.spark.sink.topic_writers import TopicWriters

_log = logging.getLogger(__name__)

_KNOWN_FOR = 60  # seconds for which a process remembers whether topics have schemas
_WRITTEN_BY_COLUMNS = (SchemaType.AVRO, SchemaType.JSON, SchemaType.KEY_VALUE)

# The column for keys of a KEY_VALUE schema, as in the source.
_KEY = "key"


class TopicEncoders:
    """Encodes the rows of one task as values of their topics.

    ``choose`` returns the schema of a topic that is not in ``pinned``; it is called once per topic.
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
        self._replay: tuple[Client, TopicWriters, DedupTask] | None = None
        self._load = uuid4().hex  # new cache key, because the topic of a cached schema may have been deleted

    def follow(self, client: Client, writers: TopicWriters, dedup: DedupTask) -> None:
        """Uses the schema versions of rows that an earlier run of the task has stored."""
        self._replay = client, writers, dedup

    def schema(self, topic: TopicName) -> VersionedSchema:
        """Returns the schema of the topic's rows; raises the errors of :func:`schema_of_rows`."""
        if topic not in self._schemas:
            self._schemas[topic] = self._choose(topic)
        return self._schemas[topic]

    def prepare(self, topics: Sequence[TopicName]) -> None:
        """Requests the schemas of topics in parallel; in a replay also opens their writers."""
        new = [topic for topic in topics if topic not in self._encoders]
        raise_error_of(run_all([partial(self.schema, topic) for topic in new]))
        if self._replay is not None:
            self._replay[1].open(new)

    def of(self, topic: TopicName) -> ValueEncoder:
        """Returns the encoder of a topic's rows; raises the errors of ``schema`` and of ``writers.of``."""
        if topic not in self._encoders:
            self._encoders[topic] = self._earlier(topic) or row_encoder(self.schema(topic).schema, self._rows)
        return self._encoders[topic]

    def _earlier(self, topic: TopicName) -> ValueEncoder | None:
        """Returns the encoder for the schema version of the rows that an earlier run has stored.

        None if no row is stored, if ``schema`` has the same version, or if the version does not fit the rows.
        If it does not fit, the rows are written with ``schema``, and so differ from the stored rows.
        """
        if self._replay is None:
            return None
        client, writers, dedup = self._replay
        writers.of(topic)  # opens a writer, which finds the rows of an earlier run
        version = dedup.stored_version(topic)
        if version is None or version == self.schema(topic).version:
            return None
        schema = client.schemas.at(topic, version, load=self._load)
        if schema is None:
            return None
        try:
            encoder = row_encoder(schema, self._rows)
        except (SchemaError, UnsupportedError) as error:
            _log.warning(
                "%s: rows are no longer written with version %d of the schema: %s", topic, version, error
            )
            return None
        _log.info("%s: rows are written with version %d of the schema, as in an earlier run", topic, version)
        self._schemas[topic] = VersionedSchema(version, schema)
        writers.close(topic)
        return encoder


def topic_encoders(
    client: Client, options: SinkOptions, shape: MessageShape, pinned: Mapping[TopicName, VersionedSchema]
) -> TopicEncoders | None:
    """Returns the encoders of a task; None if values are bytes without a schema."""
    if isinstance(shape.value, str):
        return None
    rows = shape.value.type

    def choose(topic: TopicName) -> VersionedSchema:
        return _choose(client, options, rows, topic, client.schemas.latest(topic))

    return TopicEncoders(rows, pinned, choose)


def warn_of_bytes(client: Client, topic: TopicName) -> None:
    """Logs a WARNING if a topic has a schema, because rows were written to it as bytes."""
    try:
        kind = _schema_type(client, topic, int(now() / _KNOWN_FOR))
    except PulsarError as error:
        _log.info("%s: no broker says whether the topic has a schema: %s", topic, error)
        return
    if kind in _WRITTEN_BY_COLUMNS and is_first_to_say(f"bytes for {topic}"):
        _log.warning(
            "%s has a schema (%s), but rows are written as bytes, without a version: readers by the schema "
            "fail on them. Set the option valueFormat",
            *(topic, kind.name),
        )


@lru_cache(maxsize=1000)
def _schema_type(client: Client, topic: TopicName, period: int) -> SchemaType | None:
    """Returns the type of a topic's schema, cached until ``period`` changes."""
    latest = client.schemas.latest(topic)
    return None if latest is None else latest.schema.type


def with_schemas(options: SinkOptions, client: Client) -> tuple[SinkOptions, VersionedSchema | None]:
    """Returns the options, completed by the topic's latest schema and the user's; and the latest schema.

    The topic's schema determines the encoding and whether values have keys. If rows name topics, or the topic
    has no schema, the user's options determine both, and None is returned instead of the schema.

    Raises:
        OptionError: the user's schema is invalid, or has no effect.
        SchemaError: the topic's schema is malformed.
        UnsupportedError: the sink cannot write values of its schema.
        BrokerError: no broker answered within the client's timeout.
    """
    latest = None if options.topic is None else client.schemas.latest(options.topic)
    values = options.values
    if latest is not None:
        values = replace(values, kind=kind_of_values(latest.schema))
        if latest.schema.type is SchemaType.KEY_VALUE and not values.key_columns:
            is_pair = values.format is ValueFormat.STRUCT
            values = replace(values, is_pair=is_pair, key_columns=() if is_pair else (_KEY,))
        if values.format is ValueFormat.STRUCT and values.kind is not PartKind.PRIMITIVE:
            kind = ReaderSchema(latest.schema).type
            kind = kind.field("value").type if latest.schema.type is SchemaType.KEY_VALUE else kind
            if not pa.types.is_struct(kind):  # COLUMNS and STRUCT then mean the same: one column
                values = replace(values, format=ValueFormat.COLUMNS)
    if options.key_schema is not None and not (values.key_columns or values.is_pair):
        raise OptionError(
            "option keySchema has no effect without keyColumns", advice="Name the key's columns"
        )
    record = None if values.kind is PartKind.PRIMITIVE else SchemaType[values.kind.name]
    if options.value_schema is not None:
        values = replace(values, value_schema=given_schema("valueSchema", options.value_schema, record))
    if options.key_schema is not None:
        is_name = isinstance(options.key_schema, str) and options.key_schema[:1] not in '{["'
        key = given_schema("keySchema", options.key_schema, None if is_name else record or SchemaType.AVRO)
        values = replace(values, key_schema=key)
    return replace(options, values=values), latest


def pinned_schemas(
    options: SinkOptions, shape: MessageShape, latest: VersionedSchema | None
) -> dict[TopicName, VersionedSchema]:
    """Chooses on the driver the schema of the topic that the option names, and registers it if it is new.

    Returns no schema if rows name topics, or values are bytes. Raises the errors of :func:`schema_of_rows`.
    """
    if options.topic is None or isinstance(shape.value, str):
        return {}
    client = shared_client(options.client)
    return {options.topic: _choose(client, options, shape.value.type, options.topic, latest)}


def _choose(
    client: Client, options: SinkOptions, rows: RowType, topic: TopicName, latest: VersionedSchema | None
) -> VersionedSchema:
    may_register, is_encrypted = options.values.may_register, options.encryption is not None
    return schema_of_rows(client, topic, rows, latest, may_register=may_register, is_encrypted=is_encrypted)
