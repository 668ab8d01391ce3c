"""By which schemas rows are written: pinned on the driver, or chosen by a task that meets a topic.

A micro-batch that is run again must give the same bytes. So the driver chooses, before any row, where the
option names the topic. Where each row names its own, tasks choose, each topic once; they come to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pulsar_spark.client import (
    Client,
    RowType,
    Schema,
    ValueEncoder,
    row_encoder,
    schema_of_rows,
    shared_client,
)
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.sink import SinkOptions
from pulsar_spark.spark.rows.write import MessageShape


class TopicEncoders:
    """What makes the rows of one task values of their topics.

    Args:
        rows: what they are.
        pinned: schemas by topic.
        choose: gives the schema of a topic that is not among those; asked once for each.
    """

    def __init__(
        self, rows: RowType, pinned: Mapping[TopicName, Schema], choose: Callable[[TopicName], Schema]
    ) -> None:
        self._rows = rows
        self._choose = choose
        self._schemas = dict(pinned)
        self._encoders: dict[TopicName, ValueEncoder] = {}

    def schema(self, topic: TopicName) -> Schema:
        """The schema that the topic's rows are written by; raises what :func:`schema_of_rows` does."""
        if topic not in self._schemas:
            self._schemas[topic] = self._choose(topic)
        return self._schemas[topic]

    def of(self, topic: TopicName) -> ValueEncoder:
        """The encoder of the topic's rows; raises what :func:`schema_of_rows` does."""
        if topic not in self._encoders:
            self._encoders[topic] = row_encoder(self.schema(topic), self._rows)
        return self._encoders[topic]


def topic_encoders(
    client: Client, options: SinkOptions, shape: MessageShape, pinned: Mapping[TopicName, Schema]
) -> TopicEncoders | None:
    """The encoders of a task; None where values are bytes without a schema."""
    if isinstance(shape.value, str):
        return None
    rows = shape.value.type
    return TopicEncoders(rows, pinned, lambda topic: _choose(client, options, rows, topic))


def pinned_schemas(options: SinkOptions, shape: MessageShape) -> dict[TopicName, Schema]:
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


def _choose(client: Client, options: SinkOptions, rows: RowType, topic: TopicName) -> Schema:
    may_register, is_encrypted = options.values.may_register, options.encryption is not None
    return schema_of_rows(client, topic, rows, may_register=may_register, is_encrypted=is_encrypted).schema
