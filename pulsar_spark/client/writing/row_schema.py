"""Chooses the schema in which rows are written to a topic, and registers it if it is new.

The topic need not exist yet.
"""

from __future__ import annotations

import logging
from functools import partial

from pulsar_spark.client.client import Client
from pulsar_spark.client.net.deadline import Deadline, retry
from pulsar_spark.client.net.session import Purpose
from pulsar_spark.client.schemas import VersionedSchema
from pulsar_spark.client.watches import SegmentWatch
from pulsar_spark.client.writing.producer import Producer
from pulsar_spark.client.writing.producer_options import ProducerOptions
from pulsar_spark.errors import ProtocolError, SchemaError, TopicNotFoundError, UnsupportedError, from_server
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.writing.schema_choice import RowType, choose_schema
from pulsar_spark.schema import Schema
from pulsar_spark.values import formats
from pulsar_spark.values.interfaces import ValueEncoder
from pulsar_spark.wire import commands
from pulsar_spark.wire.wire_values import from_wire_version

# Maximum attempts to choose a schema, because other programs may register schemas at the same time.
_MAX_CHOICES = 5

_log = logging.getLogger(__name__)


def schema_of_rows(
    client: Client,
    topic: TopicName,
    rows: RowType,
    latest: VersionedSchema | None,
    *,
    may_register: bool,
    is_encrypted: bool = False,
) -> VersionedSchema:
    """Chooses the schema of rows by :func:`choose_schema`, and registers a new schema.

    ``latest``: the topic's latest schema; None: it has none. Parallel registrations do not fail: after a
    refusal the schema is chosen again, with the topic's new latest schema.

    Raises:
        SchemaError: rows do not fit the topic's schema, or the broker refused a new one. The text names the
            columns, or the namespace's strategy and the broker's reason.
        UnsupportedError: the topic's schema type cannot be written, or a column's type fits no schema.
        BrokerError: the topic cannot be reached within the operation timeout.
    """
    choices = 0
    while True:
        try:
            choice = choose_schema(None if latest is None else latest.schema, rows, may_register=may_register)
        except (SchemaError, UnsupportedError) as error:
            raise error.located(str(topic)) from error
        if not choice.is_new:
            assert latest is not None
            return latest
        choices += 1
        try:
            version = register_schema(client, topic, choice.schema, is_encrypted=is_encrypted)
        except SchemaError:
            before, latest = latest, client.schemas.latest(topic)
            if latest == before or choices == _MAX_CHOICES:
                raise
        else:
            _log.info("%s: rows are written with version %d of its schema", topic, version)
            return VersionedSchema(version, choice.schema)


def row_encoder(schema: Schema, rows: RowType) -> ValueEncoder:
    """Returns the encoder of rows as values of a schema; raises SchemaError if they do not fit it."""
    return formats.encoder(schema, rows.arrow)


def register_schema(client: Client, topic: TopicName, schema: Schema, *, is_encrypted: bool = False) -> int:
    """Registers a schema if the topic does not have it, and returns the number of its version.

    The broker creates a missing topic if its auto-creation policy allows this. Set ``is_encrypted`` if the
    namespace requires encrypted producers; no key is needed.

    Raises:
        SchemaError: the broker refused the schema; the text has its reason.
        BrokerError: the topic cannot be reached within the operation timeout.
    """
    if topic.is_scalable:
        with SegmentWatch(client, topic, create=True) as watch:
            partition = watch.layout().active[0].topic
    else:
        partition = client.partitions(topic, create=True)[0]
    deadline = client.operation()
    try:
        version = retry(lambda: _get_or_create(client, partition, schema, deadline), deadline)
    except TopicNotFoundError:
        # GET_OR_CREATE_SCHEMA does not create a topic. A producer does, and registers its schema.
        producer = Producer(client, partition, ProducerOptions(schema=schema), 1, is_encrypted=is_encrypted)
        producer.close()
        version = producer.schema_version
    if version is None:
        raise ProtocolError("the broker's response to a schema registration has no version", topic=str(topic))
    return version


def _get_or_create(client: Client, topic: TopicName, schema: Schema, deadline: Deadline) -> int | None:
    """Registers a schema on an existing topic partition and returns its version; makes one attempt."""
    session = client.locate(topic, Purpose.READ, deadline)
    build = partial(commands.get_or_create_schema, topic=str(topic), schema=schema)
    answer = session.request(build, deadline).getOrCreateSchemaResponse
    if answer.HasField("error_code"):
        raise from_server(answer.error_code, answer.error_message, topic=str(topic))
    return from_wire_version(answer.schema_version)
