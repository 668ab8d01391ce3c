"""Writing rows by our client, for tests of the client and of the real broker."""

from __future__ import annotations

from pulsar_spark.client import MessageColumns, TopicWriter


def send_all(writer: TopicWriter, *batches: MessageColumns) -> None:
    """Sends rows, and waits until all are stored."""
    for batch in batches:
        writer.send(batch)
    writer.flush()


def write_all(writer: TopicWriter, *batches: MessageColumns) -> None:
    """Sends rows, waits until all are stored, and closes the writer."""
    with writer:
        send_all(writer, *batches)
