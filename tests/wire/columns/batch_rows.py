"""Messages of batches as plain rows: made at random, encoded by protobuf, and read by it."""

import struct
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.message_columns import MessageColumns

INT64 = st.integers(-(2**63), 2**63 - 1)


class Row(NamedTuple):
    value: bytes | None = b""
    key: bytes | None = None
    event_time: int | None = None
    properties: tuple[tuple[str, str], ...] = ()
    ordering_key: bytes | None = None
    sequence_id: int | None = None


def often(value, rarely):
    return st.one_of(value, value, rarely)


def rows_of_few_kinds():
    """Rows whose fields are set alike or not, few or enough for the path that reads all at once."""
    texts = st.text(max_size=9)
    keys = st.one_of(st.binary(max_size=9), st.text("abc", min_size=1, max_size=200).map(str.encode))
    row = st.builds(
        Row,
        value=often(
            st.binary(max_size=40), st.sampled_from([None, b"", b"v" * 127, b"v" * 128, b"v" * 20_000])
        ),
        key=often(keys, st.none()),
        event_time=often(st.none(), INT64),
        properties=often(st.just(()), st.lists(st.tuples(texts, texts), max_size=3).map(tuple)),
        ordering_key=often(st.none(), keys),
        sequence_id=often(INT64, st.none()),
    )
    return st.builds(
        lambda rows, times: rows * times, st.lists(row, min_size=1, max_size=6), st.sampled_from([1, 6, 40])
    )


def to_columns(rows: list[Row]) -> MessageColumns:
    value, key, event_time, properties, ordering_key, sequence_id = zip(*rows, strict=True)
    return MessageColumns(
        value=pa.array(value, pa.binary()),
        key=pa.array(key, pa.binary()),
        event_time=pa.array(event_time, pa.int64()),
        properties=pa.array(properties, pa.map_(pa.string(), pa.string())),
        ordering_key=pa.array(ordering_key, pa.binary()),
        sequence_id=pa.array(sequence_id, pa.int64()),
    )


def to_rows(columns: MessageColumns) -> list[Row]:
    count = len(columns)

    def listed(array, unset):
        return [unset] * count if array is None else array.to_pylist()

    for array in (columns.value, columns.key, columns.properties, columns.ordering_key):
        if array is not None:
            array.validate(full=True)
    return [
        Row(*fields)
        for fields in zip(
            listed(columns.value, None),
            listed(columns.key, None),
            listed(columns.event_time, None),
            [tuple(each) for each in listed(columns.properties, ())],
            listed(columns.ordering_key, None),
            listed(columns.sequence_id, None),
            strict=True,
        )
    ]


def frame(metadata: bytes, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(metadata)) + metadata + payload


def message(payload: bytes = b"", **fields: Any) -> bytes:
    metadata = pb.SingleMessageMetadata(payload_size=len(payload), **fields)
    return frame(metadata.SerializeToString(), payload)


def signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def parsed(body: bytes, count: int) -> list[Row]:
    """Read a batch of messages with the protobuf class; keys must not be flagged as base64."""
    rows = []
    at = 0
    for _ in range(count):
        end = at + 4 + int.from_bytes(body[at : at + 4], "big")
        single = pb.SingleMessageMetadata.FromString(body[at + 4 : end])
        at = end + single.payload_size
        assert end <= at <= len(body)
        if single.compacted_out:
            continue
        key = single.partition_key
        no_key = single.null_partition_key or not single.HasField("partition_key")
        rows.append(
            Row(
                None if single.null_value else body[end:at],
                None if no_key else key,
                signed(single.event_time) if single.HasField("event_time") else None,
                tuple(
                    (each.key.decode(errors="replace"), each.value.decode(errors="replace"))
                    for each in single.properties
                ),
                single.ordering_key if single.HasField("ordering_key") else None,
                signed(single.sequence_id) if single.HasField("sequence_id") else None,
            )
        )
    assert at == len(body)
    return rows


def foreign_messages():
    """Messages in every form that protobuf allows: odd order, unknown and repeated fields, flags."""
    varints = st.one_of(st.integers(0, 200), st.integers(0, 2**64 - 1))
    texts = st.binary(max_size=6)

    def varint(number):
        low, rest = number & 0x7F, number >> 7
        return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])

    def of_bytes(tag, content):
        return varint(tag) + varint(len(content)) + content

    utf8 = st.text(max_size=4).map(str.encode)
    keyvalue = st.builds(
        lambda k, v, x: of_bytes(0x0A, k) + of_bytes(0x12, v) + x,
        utf8,
        utf8,
        st.sampled_from([b"", b"\x18\x05"]),
    )
    field = st.one_of(
        st.builds(of_bytes, st.just(0x12), texts),
        st.builds(of_bytes, st.just(0x0A), keyvalue),
        st.builds(of_bytes, st.just(0x3A), texts),
        st.builds(lambda tag, n: varint(tag) + varint(n), st.sampled_from([0x28, 0x40]), varints),
        st.sampled_from([b"\x48\x01", b"\x48\x00", b"\x50\x01", b"\x20\x01", b"\x20\x00", b"\x20\x80\x00"]),
        st.builds(of_bytes, st.sampled_from([0x62, 0x7FF2]), texts),
        st.builds(lambda n: b"\x88\x01" + varint(n), varints),
        st.sampled_from([b"\x8d\x01abcd", b"\x89\x01abcdefgh", b"\x92\x00\x03key"]),
    )

    def put_together(fields, place, payload):
        fields = fields.copy()
        fields.insert(min(place, len(fields)), b"\x18" + varint(len(payload)))
        return frame(b"".join(fields), payload)

    return st.builds(put_together, st.lists(field, max_size=4), st.integers(0, 4), st.binary(max_size=30))
