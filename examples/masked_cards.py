"""An interceptor masks card numbers in each message before it is sent, and counts what the broker stored.

In the folder of this file:
spark-submit --py-files masked_cards.py masked_cards.py pulsar://localhost:6650 orders masked
"""

import logging
import sys
from dataclasses import replace

import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.readwriter import DataFrameWriter

from pulsar_spark import MessageColumns, MessageId, ProducerInterceptor

log = logging.getLogger(__name__)


class MaskedCards(ProducerInterceptor):
    """Each task has its own."""

    def __init__(self) -> None:
        self.stored = 0

    def before_send(self, columns: MessageColumns) -> MessageColumns:
        """The same messages, with other values."""
        masked = pc.replace_substring_regex(columns.value, pattern=rb"\b[0-9]{12,19}\b", replacement=b"****")
        return replace(columns, value=masked)

    def on_send_acknowledgement(
        self,
        topic: str,
        sequence_id: int,
        messages: int,
        message_id: MessageId | None,
        error: Exception | None,
    ) -> None:
        """One batch of messages was stored, or was not."""
        self.stored += messages if error is None else 0
        log.info("%s: %d messages stored, the last at %s", topic, self.stored, message_id)


def copy(
    spark: SparkSession, service_url: str, source: str, target: str, module: str = "masked_cards"
) -> DataFrameWriter:
    """Make the write, to be saved; ``module`` is the name by which workers import this file."""
    reader = spark.read.format("pulsar").option("service.url", service_url).option("topic", source)
    writer = reader.load().select("__key", "value").write.format("pulsar").option("service.url", service_url)
    writer = writer.option("pulsar.producer.interceptors", f"{module}.MaskedCards")
    return writer.option("topic", target).mode("append")


if __name__ == "__main__":
    copy(SparkSession.builder.appName("masked cards").getOrCreate(), *sys.argv[1:]).save()
