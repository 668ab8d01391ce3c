"""Requests, chooses and, if it is new, registers the schema that rows of a topic are written by."""

from __future__ import annotations

import logging

from pulsar_spark.client.client import Client
from pulsar_spark.client.schemas import VersionedSchema
from pulsar_spark.client.writing.schema_registration import register_schema
from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.writing.schema_choice import RowType, choose_schema
from pulsar_spark.schema import Schema
from pulsar_spark.values import formats
from pulsar_spark.values.interfaces import ValueEncoder

# How often it is chosen again, because others have registered a schema meanwhile.
_MAX_CHOICES = 5

_log = logging.getLogger(__name__)


def schema_of_rows(
    client: Client, topic: TopicName, rows: RowType, *, may_register: bool, is_encrypted: bool = False
) -> VersionedSchema:
    """Choose the schema that rows are written by, as :func:`choose_schema` does, and register a new one.

    Parallel registrations do not fail: after a refusal the schema is chosen again, by the topic's schema at
    that time.

    Args:
        client: where to connect.
        topic: with or without partitions; created as the broker's policy for producers says, where a schema
            is registered.
        rows: what is to be written.
        may_register: whether a schema may be registered.
        is_encrypted: whether rows are encrypted.

    Raises:
        SchemaError: rows do not fit the topic's schema, or the broker refused a new one. The text names the
            columns, or the namespace's strategy and the broker's reason.
        UnsupportedError: values of the topic's schema are not written, or a column's type is in no schema.
        BrokerError: the topic cannot be reached within the operation timeout.
    """
    latest = client.schemas.latest(topic)
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
    """Make the encoder of rows as values of a schema; raises SchemaError where they do not fit it."""
    return formats.encoder(schema, rows.arrow)
