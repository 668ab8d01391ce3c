"""Reads one range as a task does that has no other."""

from collections.abc import Generator
from contextlib import closing
from typing import Any

from pulsar_spark.client import Client, Entries, Range, read_ranges
from pulsar_spark.client.reading.entry_range import RangeOptions, read_entries
from pulsar_spark.client.reading.message_range import whole_messages
from pulsar_spark.ids import MessageId, TopicName


def read_range(
    client: Client,
    topic: TopicName,
    start: MessageId,
    end: MessageId,
    *,
    visible: bool = True,
    begins: MessageId | None = None,
    followed: bool = False,
    window_bytes: int | None = None,
    **options: Any,
) -> Generator[Entries, None, None]:
    """Give all entries in ``(start, end]``, whole, in order, each once.

    Args:
        client: where to connect.
        topic: one partition, or a topic without partitions.
        start: the last entry taken before.
        end: the last entry wanted.
        visible: as of ``RangeOptions``.
        begins: as of ``RangeOptions``.
        followed: as of ``RangeOptions``.
        window_bytes: bytes that may be in flight; then nothing is prefetched, so that a test decides what
            happens between two entries.
        options: of ``read_ranges``.
    """
    if window_bytes is None:
        asked = Range(topic, start, end, visible, begins, followed)
        with closing(read_ranges(client, [asked], **options)) as ranges:
            for entries in ranges:
                yield from entries
        return
    chunks, decryptor = options.pop("chunks", None), options.pop("decryptor", None)
    own = RangeOptions(
        visible=visible, begins=begins, followed=followed, window_bytes=window_bytes, **options
    )
    stored = read_entries(client, topic, start, end, own)
    yield from whole_messages(client, topic, start, end, stored, own, chunks, decryptor)
