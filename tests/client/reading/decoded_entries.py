"""What is decoded of entries, in tests."""

from pulsar_spark.client.reading.decode import RangeEntries, decode_entries
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entries
from tests.client.reading.stored_entries import TOPIC

CODECS = [pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY]


def decoded(groups, start=None, end=None, *, copies=None, **more):
    """What is decoded of entries that come in groups, in portions."""
    entries = [Entries.of(group) for group in groups]
    return decoded_ranges([RangeEntries(TOPIC, entries, start, end, copies)], **more)


def decoded_ranges(ranges, max_rows=10_000, max_bytes=2**20, **more):
    return list(decode_entries(ranges, max_rows=max_rows, max_bytes=max_bytes, **more))


def values(groups, *positions, **limits):
    return [value for part in decoded(groups, *positions, **limits) for value in part.value.to_pylist()]
