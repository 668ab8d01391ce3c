"""Columns of entries are what protobuf's runtime finds in each of them."""

import struct

import numpy as np
import pytest
from crc32c import crc32c
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptError
from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import decode_singles
from pulsar_spark.wire.entry.entries import Entries, Entry, decode
from pulsar_spark.wire.entry.entry_fields import EntryField, read_sections
from pulsar_spark.wire.frame_runs import Messages, group_for_decoding
from pulsar_spark.wire.frames import decode_payload_section
from pulsar_spark.wire.wire_values import varint

ENOUGH = 24  # entries, to be read by column


def number_field(number, value):
    return varint(number << 3) + varint(value)


def bytes_field(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value


U64 = st.integers(0, 300) | st.integers(0, 2**64 - 1)
SHORT = st.binary(max_size=6) | st.text(max_size=6).map(str.encode) | st.just(b"x" * 200)
BOOL = st.integers(0, 2)
VARINTS = {
    **dict.fromkeys((2, 3, 12, 22, 23, 24), U64),
    **dict.fromkeys((9, 19, 20, 28, 29, 31, 33, 34), U64),
    **dict.fromkeys((17, 25, 30), BOOL),
    # The lower half of the varint counts.
    8: st.builds(lambda low, high: low | high << 32, st.integers(0, 4), st.sampled_from([0, 0, 1, 2**31])),
    27: st.integers(0, 3),
}
LENGTHS = dict.fromkeys((1, 5, 6, 7, 14, 15, 16, 18, 26, 32, 2019), SHORT)


def key_values():
    def made(key, value, turned, more):
        parts = [bytes_field(1, key), bytes_field(2, value)]
        return b"".join(parts[::-1] if turned else parts) + more

    more = st.sampled_from([b"", b"", b"", bytes_field(2, b"again"), number_field(9, 1)])
    return st.builds(made, SHORT, SHORT, st.booleans(), more)


def fields():
    varints = st.one_of(
        [st.builds(number_field, st.just(number), values) for number, values in VARINTS.items()]
    )
    spans = st.one_of([st.builds(bytes_field, st.just(number), values) for number, values in LENGTHS.items()])
    properties = st.builds(bytes_field, st.just(4), key_values())
    keys = st.just(bytes_field(13, bytes_field(1, b"k") + bytes_field(2, b"v")))
    batch = st.builds(number_field, st.just(11), st.integers(1, 2000))
    unknown = st.sampled_from(
        [
            number_field(99, 2**64 - 1),
            bytes_field(2000, b"later"),
            number_field(2019, 5),  # an origin is of bytes
            varint(40 << 3 | 5) + b"four",
            varint(41 << 3 | 1) + b"eight888",
            number_field(1, 5),  # known by another wire type
            bytes_field(12, b"no time"),
            varint(50 << 3 | 3) + varint(50 << 3 | 4),  # a group
        ]
    )
    return varints | spans | properties | properties | keys | batch | unknown


REQUIRED = [bytes_field(1, b"producer"), number_field(2, 7), number_field(3, 1_700_000_000_000)]
METADATA = st.builds(
    lambda more, order: b"".join(order.sample([*REQUIRED, *more], len(REQUIRED) + len(more))),
    st.lists(fields(), max_size=8),
    st.randoms(use_true_random=False),
)
BROKER = st.sampled_from(
    [b"", b"\x10\x06", b"\x08\x05\x10\xac\x02", b"\x08\x05", b"\x10\x05\x10\x09", number_field(2, 2**63)]
)


def section(metadata, payload=b"value", broker=b""):
    checked = struct.pack(">I", len(metadata)) + metadata + payload
    head = b"\x0e\x02" + struct.pack(">I", len(broker)) + broker if broker else b""
    return head + b"\x0e\x01" + struct.pack(">I", crc32c(checked)) + checked


def messages(sections):
    ends = np.cumsum([len(each) for each in sections])
    starts = ends - np.array([len(each) for each in sections])
    count = len(sections)
    return Messages(7, b"".join(sections), np.full(count, 5), np.arange(count), starts, ends)


def optional(metadata, name):
    return getattr(metadata, name) if metadata.HasField(name) else None


def assert_as_parsed(entries, stored):
    parsed = [one.metadata for one in stored]
    assert [one.metadata for one in entries] == parsed
    assert [bytes(payload) for payload in entries.payloads] == [bytes(one.payload) for one in stored]
    assert [one.broker_index for one in entries] == [one.broker_index for one in stored]
    assert [one.broker_time for one in entries] == [one.broker_time for one in stored]
    expected_counts = [
        (one.num_messages_in_batch or -1) if one.HasField("num_messages_in_batch") else 0 for one in parsed
    ]
    assert entries.messages.tolist() == expected_counts
    assert entries.publish_time.view(np.uint64).tolist() == [one.publish_time for one in parsed]
    assert entries.chunked.tolist() == [one.num_chunks_from_msg > 1 for one in parsed]
    assert entries.compression.tolist() == [one.compression for one in parsed]
    assert entries.uncompressed_size.tolist() == [one.uncompressed_size for one in parsed]
    assert entries.encrypted.tolist() == [len(one.encryption_keys) > 0 for one in parsed]
    for number, name in (
        (EntryField.PRODUCER_NAME, "producer_name"),
        (EntryField.REPLICATED_FROM, "replicated_from"),
        (EntryField.SCHEMA_VERSION, "schema_version"),
        (EntryField.ORDERING_KEY, "ordering_key"),
    ):
        assert entries.texts(number).to_pylist() == [optional(one, name) for one in parsed]
    assert entries.texts(EntryField.ORIGIN).to_pylist() == [origin(one) for one in parsed]
    is_replicated = [len(one.replicate_to) > 0 for one in parsed]
    assert entries.texts(EntryField.REPLICATE_TO).is_valid().to_pylist() == is_replicated
    times, has_time = entries.numbers(EntryField.DELIVER_AT)
    assert has_time.tolist() == [one.HasField("deliver_at_time") for one in parsed]
    assert times.view(np.uint64).tolist() == [one.deliver_at_time & 2**64 - 1 for one in parsed]


def origin(metadata):
    """The last field of that number and type; the runtime does not know it."""
    found = [
        field.data
        for field in UnknownFieldSet(metadata)  # type: ignore[attr-defined]
        if (field.field_number, field.wire_type) == (EntryField.ORIGIN, 2)
    ]
    return found[-1] if found else None


def assert_singles_as_parsed(entries, stored):
    parsed = [one.metadata for one in stored]
    columns = decode_singles(entries)
    values = [None if one.metadata.null_value else bytes(one.payload) for one in stored]
    assert columns.value.to_pylist() == values
    assert columns.key.to_pylist() == [
        None if one.null_partition_key else optional(one, "partition_key") for one in parsed
    ]
    signed = [
        value if value is None else (value ^ 1 << 63) - (1 << 63)
        for value in [one.event_time if one.HasField("event_time") else None for one in parsed]
    ]
    times = [None] * len(parsed) if columns.event_time is None else columns.event_time.to_pylist()
    assert times == signed
    properties = [
        [tuple(text.decode("utf-8", "replace") for text in (each.key, each.value)) for each in one.properties]
        for one in parsed
    ]
    found = [[]] * len(parsed) if columns.properties is None else columns.properties.to_pylist()
    assert found == properties


def parsed_until_refused(sections):
    stored = []
    for each in sections:
        try:
            stored.append(decode_payload_section(memoryview(each)))
        except CorruptError as error:
            return stored, str(error)
    return stored, None


@given(st.lists(st.tuples(METADATA, SHORT, BROKER), min_size=1, max_size=5), st.integers(1, 40), st.data())
def test_columns_are_what_protobuf_parses(kinds, count, data):
    sections = [section(*kinds[row % len(kinds)]) for row in range(count)]
    stored = [decode_payload_section(memoryview(each)) for each in sections]
    entries, corrupt, _ = decode([messages(sections)])
    assert corrupt is None
    first = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(first, count))
    for part, expected in ((entries, stored), (entries[first:stop], stored[first:stop])):
        assert_as_parsed(part, expected)
        if not any(one.metadata.partition_key_b64_encoded for one in expected):
            assert_singles_as_parsed(part, expected)
    again = Entries.of(list(entries[first:stop]))
    assert_as_parsed(again, stored[first:stop])
    assert list(again) == list(entries[first:stop])


@given(st.lists(st.tuples(METADATA, SHORT, BROKER), min_size=1, max_size=3), st.integers(1, 40), st.data())
def test_damaged_sections_are_refused_where_protobuf_refuses_them(kinds, count, data):
    sections = [section(*kinds[row % len(kinds)]) for row in range(count)]
    for _ in range(data.draw(st.integers(1, 2))):
        row = data.draw(st.integers(0, count - 1))
        damaged = bytearray(sections[row])
        at = data.draw(st.integers(0, len(damaged)))
        damaged[at : at + 1] = data.draw(st.binary(max_size=2))
        sections[row] = bytes(damaged)
    stored, told = parsed_until_refused(sections)
    entries, corrupt, _ = decode([messages(sections)])
    assert_as_parsed(entries, stored)
    assert (None if corrupt is None else str(corrupt)) == told


@pytest.mark.parametrize("count", [1, 40])
def test_one_changed_bit_of_a_payload_is_refused(count):
    whole = [section(b"".join(REQUIRED), b"payload %d" % row) for row in range(count)]
    for row in {0, count // 2, count - 1}:
        damaged = bytearray(whole[row])
        damaged[-1] ^= 1
        entries, corrupt, _ = decode([messages([*whole[:row], bytes(damaged), *whole[row + 1 :]])])
        assert "checksum" in str(corrupt)
        assert len(entries) == row


@given(st.lists(METADATA.filter(lambda one: b"\x04" not in one), min_size=24, max_size=30))
def test_damaged_metadata_under_a_right_checksum(metadata):
    sections = [section(one[:-1] if row == 20 else one) for row, one in enumerate(metadata)]
    entries, corrupt, _ = decode([messages(sections)])
    stored, told = parsed_until_refused(sections)
    assert_as_parsed(entries, stored)
    assert (None if corrupt is None else str(corrupt)) == told


@pytest.mark.parametrize(
    "metadata",
    [
        b"".join(REQUIRED[:2]),
        b"".join([*REQUIRED, bytes_field(4, bytes_field(1, b"no value"))]),
        b"".join([*REQUIRED, b"\x32\x7f"]),
        b"".join([*REQUIRED, bytes_field(13, b"\xff")]),
        b"".join([*REQUIRED, bytes_field(13, bytes_field(1, b"no value"))]),
        b"".join([*REQUIRED, bytes_field(13, bytes_field(1, b"k") + bytes_field(2, b"v") + b"\x1a\x01\x08")]),
        b"".join([*REQUIRED, (varint(99 << 3 | 3) * 3000)]),
    ],
)
def test_what_lacks_something_is_corrupt(metadata):
    good = section(b"".join(REQUIRED))
    entries, corrupt, corrupt_id = decode([messages([good] * 30 + [section(metadata)] + [good])])
    assert len(entries) == 30
    assert corrupt is not None
    assert corrupt_id == MessageId(5, 30)


@pytest.mark.parametrize("count", [2, 33])
def test_a_batch_of_nothing_is_told_from_what_is_no_batch(count):
    """It is refused where entries are decoded, not here: those after it need no other connection."""
    single = section(b"".join(REQUIRED))
    for claimed, expected in ((0, -1), (2**64 - 1, -1), (2**64 - 10**6, -(10**6)), (1 << 31, -(1 << 31))):
        strange = section(b"".join([*REQUIRED, number_field(11, claimed)]))
        entries, corrupt, _ = decode([messages([single] * count + [strange, single])])
        assert corrupt is None
        assert entries.messages.tolist() == [0] * count + [expected, 0]


def test_usual_entries_are_read_by_column():
    more = [bytes_field(6, b"key"), number_field(9, 100), bytes_field(4, bytes_field(1, b"a") + b"\x12\0")]
    kinds = [b"".join(REQUIRED), b"".join([*REQUIRED, *more]), b"".join([*REQUIRED, bytes_field(18, b"o")])]
    sections = [section(kinds[row % 3], broker=b"\x08\x05\x10\x06") for row in range(ENOUGH)]
    fields, indexes, times = read_sections(messages(sections))
    assert EntryField.KEY in fields.spans
    assert indexes.tolist() == [6] * ENOUGH
    assert times.tolist() == [5] * ENOUGH


@pytest.mark.parametrize("count", [1, ENOUGH])  # alone, and by column
@pytest.mark.parametrize("second", [None, b"o" * 38])
def test_what_says_how_and_by_whom_an_entry_was_written(count, second):
    """Fields that few entries have, in some of them only; the last of several origins counts."""
    more = [
        number_field(19, 5),
        bytes_field(7, b"east"),
        bytes_field(7, b"west"),
        bytes_field(2019, b"first"),
    ]
    if second is not None:
        more.append(bytes_field(2019, second))
    with_all, without = section(b"".join([*REQUIRED, *more])), section(b"".join(REQUIRED))
    sections = [without if row % 3 == 1 else with_all for row in range(count)]
    if count > 1:
        fields, *_ = read_sections(messages(sections))
        assert EntryField.ORIGIN in fields.spans
    read = decode([messages(sections)]).entries
    for entries in (read, Entries.of(list(read))):
        expected = [each is with_all for each in sections]
        origins = [(second or b"first") if has else None for has in expected]
        assert entries.texts(EntryField.ORIGIN).to_pylist() == origins
        assert entries.texts(EntryField.REPLICATE_TO).is_valid().to_pylist() == expected
        times, has_time = entries.numbers(EntryField.DELIVER_AT)
        assert has_time.tolist() == expected
        assert times[has_time].tolist() == [5] * sum(expected)


def test_a_compression_of_the_future_is_not_taken_for_none():
    unknown = section(b"".join([*REQUIRED, number_field(8, 9)]))
    for count in (1, ENOUGH):
        entries = decode([messages([unknown] * count)]).entries
        assert entries.compression.tolist() == [9] * count
        assert Entries.of(list(entries)).compression.tolist() == [9] * count


@pytest.mark.parametrize("count", [1, ENOUGH])  # alone, and by column
@pytest.mark.parametrize(("value", "kind"), [(1 << 63, pb.NONE), ((1 << 32) + 1, pb.LZ4), ((1 << 40) + 9, 9)])
def test_a_compression_has_the_lower_32_bits_of_its_varint(count, value, kind):
    one = section(b"".join([*REQUIRED, number_field(8, value)]))
    assert decode([messages([one] * count)]).entries.compression.tolist() == [kind] * count


def test_messages_are_joined():
    parts = [
        messages([section(b"".join(REQUIRED), b"%d-%d" % (part, row)) for row in range(3)])
        for part in range(9)
    ]
    (whole,) = group_for_decoding(parts)
    entries = decode(whole).entries
    assert [bytes(payload) for payload in entries.payloads] == [
        b"%d-%d" % (part, row) for part in range(9) for row in range(3)
    ]
    large = messages([section(b"".join(REQUIRED), bytes(500_000))])
    groups = [parts[0], large, parts[1], large, large, parts[2]]
    assert [len(group) for group in group_for_decoding(groups)] == [4, 2]
    assert [len(decode(group).entries) for group in group_for_decoding(groups)] == [8, 4]
    assert [len(one.payload) for one in decode([large, parts[1]]).entries] == [500_000, 3, 3, 3]


def test_slices_share_memory_and_know_their_rows():
    metadata = pb.MessageMetadata(producer_name=b"p", sequence_id=1, publish_time=2, num_chunks_from_msg=3)
    first = MessageId(1, 1)
    payload = memoryview(bytes(100))
    entries = Entries.of(
        [Entry(1, row, metadata, payload, row, 50, first if row == 3 else None) for row in range(5)]
    )
    part = entries[2:]
    assert (len(part), part.entry.tolist(), part.index.tolist()) == (3, [2, 3, 4], [2, 3, 4])
    assert part.payloads[0] is payload
    assert [part.first_chunk(row) for row in range(3)] == [None, first, None]
    assert part.one(-1).entry == 4
    assert [part.metadata(row) for row in (0, -1)] == [part.one(row).metadata for row in (0, -1)]
    assert part[1:2].one(0).first_chunk == first
    assert part.sizes.tolist() == [metadata.ByteSize() + 100] * 3
    assert len(entries[4:2]) == 0
    with pytest.raises(IndexError):
        part.one(3)
    with pytest.raises(ValueError, match="without gaps"):
        entries[::2]


# producer_name, replicated_from, schema_version, schema_id
NAMES = {1: b"a name", 5: b"a cluster", 16: b"eight by", 32: b"an id"}


@pytest.mark.parametrize("count", [1, ENOUGH])  # alone, and by column
@pytest.mark.parametrize("left_out", [None, 5, 16, 32])
def test_texts_that_each_message_takes_count_whichever_an_entry_lacks(count, left_out):
    metadata = b"".join(bytes_field(number, text) for number, text in NAMES.items() if number != left_out)
    numbers = number_field(2, 1) + number_field(3, 1)
    entries = decode([messages([section(metadata + numbers)] * count)]).entries
    expected = sum(len(text) for number, text in NAMES.items() if number != left_out)
    assert entries.text_sizes.tolist() == [expected] * count
