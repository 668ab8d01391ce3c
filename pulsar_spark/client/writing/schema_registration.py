"""Registering schemas of topics, also of those that do not exist yet."""

from __future__ import annotations

from pulsar_spark.client.client import Client
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.pool import Purpose
from pulsar_spark.client.net.retry import retry
from pulsar_spark.client.writing.producer import Producer
from pulsar_spark.client.writing.producer_options import ProducerOptions
from pulsar_spark.errors import ProtocolError, TopicNotFoundError, from_server
from pulsar_spark.ids import TopicName
from pulsar_spark.schema import Schema
from pulsar_spark.wire import commands
from pulsar_spark.wire.wire_schema import from_wire_version


def register_schema(client: Client, topic: TopicName, schema: Schema, *, is_encrypted: bool = False) -> int:
    """Register a schema where the topic does not have it, and return the number of its version.

    Args:
        client: where to connect.
        topic: with or without partitions; created as the broker's policy for producers says.
        schema: of the topic's values.
        is_encrypted: whether a namespace may take encrypted producers only; no key is needed here.

    Raises:
        SchemaError: the broker refused it, for what its text says.
        BrokerError: the topic cannot be reached within the operation timeout.
    """
    partition = client.partitions(topic, create=True)[0]
    deadline = client.operation()
    try:
        version = retry(lambda: _get_or_create(client, partition, schema, deadline), deadline)
    except TopicNotFoundError:
        # Only a producer creates topics.
        producer = Producer(client, partition, ProducerOptions(schema=schema), 1, is_encrypted=is_encrypted)
        producer.close()
        version = producer.schema_version
    if version is None:
        raise ProtocolError("the broker's response to a schema registration has no version", topic=str(topic))
    return version


def _get_or_create(client: Client, topic: TopicName, schema: Schema, deadline: Deadline) -> int | None:
    """Register a schema on an existing topic partition and return its version; one attempt."""
    session = client.locate(topic, Purpose.READ, deadline)
    answer = session.request(
        lambda request_id: commands.get_or_create_schema(request_id, str(topic), schema), deadline
    ).getOrCreateSchemaResponse
    if answer.HasField("error_code"):
        raise from_server(answer.error_code, answer.error_message, topic=str(topic))
    return from_wire_version(answer.schema_version)
