"""Which entries are corrupt, how they are named, and what is left out."""

import pytest

from pulsar_spark.client.reading import decode
from pulsar_spark.client.reading.decode import MAX_MESSAGES, RangeEntries
from pulsar_spark.errors import CorruptError, UnsupportedError
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import encode_batch_messages
from pulsar_spark.wire.entry.codecs import compress
from pulsar_spark.wire.entry.entries import Entries, Entry
from tests.client.reading.decoded_entries import CODECS, decoded, decoded_ranges, values
from tests.client.reading.stored_entries import (
    TOPIC,
    batch_entry,
    bomb,
    columns,
    entry_of,
    metadata,
    single_entry,
)
from tests.loops import for_each


def lz4_entry(number, plain, declared):
    fields = {"num_messages_in_batch": 1, "compression": pb.LZ4, "uncompressed_size": declared}
    return Entry(5, number, metadata(**fields), memoryview(compress(pb.LZ4, plain)), None)


BAD_KEY = {"partition_key": b"not base64!", "partition_key_b64_encoded": True}
CORRUPT = {
    "framing": Entry(5, 6, metadata(num_messages_in_batch=2), memoryview(b"\0\0\0\x02\x18\0"), None),
    "lz4": Entry(5, 6, metadata(compression=pb.LZ4, uncompressed_size=100), memoryview(b"no"), None),
    "zstd": Entry(5, 6, metadata(compression=pb.ZSTD, uncompressed_size=2**31), memoryview(b"no"), None),
    "unknown codec": Entry(
        5,
        6,
        pb.MessageMetadata.FromString(metadata(uncompressed_size=2).SerializeToString() + b"\x40\x63"),
        memoryview(b"no"),
        None,
    ),
    "too many messages": Entry(
        5, 6, metadata(num_messages_in_batch=2**31 - 1), memoryview(b"\0\0\0\x02\x18\0"), None
    ),
    "a bomb of messages": bomb(MAX_MESSAGES + 1),
    "fewer bytes than messages": Entry(
        5, 6, metadata(num_messages_in_batch=100_000), memoryview(b"\0\0\0\x02\x18\0"), None
    ),
    "a single's key": single_entry(5, 6, b"v", **BAD_KEY),
    "a single's key, compressed": entry_of(5, 6, b"v", compression=pb.ZSTD, **BAD_KEY),
    "a batch's key": entry_of(5, 6, b"\0\0\0\x09\x12\x03no!\x18\0\x30\x01", num_messages_in_batch=1),
    "a batch that does not decompress": Entry(
        5,
        6,
        metadata(num_messages_in_batch=1, compression=pb.ZLIB, uncompressed_size=9),
        memoryview(b"no"),
        None,
    ),
}


@pytest.mark.parametrize("entry", CORRUPT.values(), ids=CORRUPT.keys())
def test_a_corrupt_entry_names_topic_and_message(entry):
    single, batch = single_entry(5, 5, b"good"), batch_entry(5, 5, columns([b"good"]))
    for group in ([entry], [single, entry, single], [batch, entry, batch]):
        for groups in ([group], [group[:1], group[1:]]):
            with pytest.raises(CorruptError) as found:
                decoded(groups)
            assert (found.value.topic, found.value.message_id) == (str(TOPIC), "5:6")


@pytest.mark.parametrize("entry", CORRUPT.values(), ids=CORRUPT.keys())
def test_a_corrupt_entry_may_be_left_out_with_a_warning(entry, caplog):
    """Alone, and among others of its kind and of others, once and twice."""
    good = [single_entry(5, 5, b"good"), entry_of(5, 7, b"good", compression=pb.ZSTD)]
    good += [
        batch_entry(5, number, columns([b"good", b"too"]), compression=kind)
        for number, kind in enumerate(CODECS, 8)
    ]
    for group in ([entry], [good[0], entry, *good[1:]], [*good[1:], entry, good[0], entry, *good[::-1]]):
        for groups in ([group], [group[:1], group[1:]], [[one] for one in group]):
            caplog.clear()
            kept = [[one for one in each if one is not entry] for each in groups]
            assert values(groups, leave_out_corrupt=True) == values(kept)
            assert caplog.text.count("an entry that cannot be decoded is left out: [PULSAR_CORRUPT]") == sum(
                one is entry for one in group
            )
            assert f"topic {TOPIC}; message 5:6" in caplog.text


@pytest.mark.parametrize("name", ["decode_batches", "decode_singles"])
@pytest.mark.parametrize("bad", [[0], [999], [499, 500], [3, 250, 777]])
def test_a_corrupt_entry_does_not_have_all_others_decoded_one_by_one(monkeypatch, name, bad):
    real, calls = getattr(decode, name), []
    monkeypatch.setattr(decode, name, lambda *given: calls.append(1) or real(*given))
    fields = {"num_messages_in_batch": 1} if name == "decode_batches" else {}
    plain = b"\0\0\0\x02\x18\1v" if fields else b"v"
    group = [entry_of(5, entry, plain, compression=pb.ZSTD, **fields) for entry in range(1000)]
    for entry in bad:
        group[entry] = group[entry]._replace(payload=memoryview(b"no"))
    assert values([group], leave_out_corrupt=True) == [b"v"] * (1000 - len(bad))
    assert len(calls) < 30 * len(bad)
    with pytest.raises(CorruptError, match=f"message 5:{bad[0]}"):
        decoded([group])


def test_all_corrupt_entries_may_be_left_out(caplog):
    bad = [entry._replace(entry=number) for number, entry in enumerate(CORRUPT.values())]
    assert values([bad], leave_out_corrupt=True) == []
    assert all(f"message 5:{number}\n" in caplog.text for number in range(len(bad)))
    assert "failOnDataLoss" not in caplog.text, "it is set"


def kafka_entry(name=b"kafka", **fields):
    """Records as Kafka-on-Pulsar can store them: a batch of Kafka, which begins with an offset of 8 bytes."""
    records = bytes(8) + (100).to_bytes(4, "big") + bytes(100)
    properties = [pb.KeyValue(key=b"entry.format", value=name)]
    more = {"producer_name": b"", "properties": properties, "num_messages_in_batch": 3, **fields}
    return Entry(5, 6, metadata(**more), memoryview(records), None)


@pytest.mark.parametrize("leave_out_corrupt", [False, True])
@pytest.mark.parametrize(
    "more", [{}, {"num_messages_in_batch": MAX_MESSAGES}], ids=["usual", "refused before"]
)
def test_records_of_kafka_are_told_by_their_format_and_never_left_out(leave_out_corrupt, more):
    good = [batch_entry(5, number, columns([b"good"])) for number in (5, 7)]
    for name in (b"kafka", b"mixed_kafka"):
        for group in ([kafka_entry(name, **more)], [good[0], kafka_entry(name, **more), good[1]]):
            with pytest.raises(
                UnsupportedError, match=rf"format {name.decode()}; topic {TOPIC}; message 5:6"
            ):
                decoded([group], leave_out_corrupt=leave_out_corrupt)


def test_a_message_may_have_a_property_of_any_name():
    properties = [pb.KeyValue(key=b"entry.format", value=b"kafka")]
    single = single_entry(5, 6, b"v", properties=properties)
    assert values([[single, batch_entry(5, 7, columns([b"w"]), properties=properties)]]) == [b"v", b"w"]
    with pytest.raises(CorruptError):
        decoded([[single._replace(metadata=metadata(properties=properties, compression=pb.ZSTD))]])


def test_the_first_of_several_corrupt_entries_is_named():
    bad = CORRUPT["framing"]
    for group in ([bad, bad._replace(entry=7)], [CORRUPT["a single's key"], bad._replace(entry=7)]):
        with pytest.raises(CorruptError, match="message 5:6"):
            decoded([group])


@pytest.mark.parametrize("payload", [b"no", b""])
def test_a_corrupt_entry_among_lz4_ones_is_found(payload):
    good = [batch_entry(5, number, columns([b"good"]), compression=pb.LZ4) for number in (4, 5)]
    bad = lz4_entry(6, b"", 10)._replace(payload=memoryview(payload))
    with pytest.raises(CorruptError, match="message 5:6"):
        decoded([[*good, bad, *good]])


def test_lz4_entries_whose_sizes_are_wrong_but_for_their_sum_are_found():
    """Joined they decompress, and a message does not end where an entry is said to."""
    plain = [encode_batch_messages(columns([value])).buffer.tobytes() for value in (b"a" * 50, b"b" * 70)]
    entries = [
        lz4_entry(6 + number, body, len(body) + more)
        for number, (body, more) in enumerate(zip(plain, (10, -10), strict=True))
    ]
    with pytest.raises(CorruptError, match="message 5:6"):
        decoded([entries])


@for_each("claimed", [0, -1, -(10**6), -(1 << 31)])
@for_each("more", [{}, {"num_chunks_from_msg": 2}, {"compression": pb.LZ4, "uncompressed_size": 9}])
@for_each("before", [0, 1, 30])
def test_a_batch_of_no_messages_is_refused_alone_and_among_others(claimed, more, before):
    good = [single_entry(5, entry, b"%d" % entry) for entry in range(before + 1)]
    group = [*good[:before], entry_of(5, 99, b"bad", num_messages_in_batch=claimed, **more), good[before]]
    with pytest.raises(CorruptError, match=r"a batch of no messages.* message 5:99"):
        decoded([group])
    assert values([group], leave_out_corrupt=True) == [b"%d" % entry for entry in range(before + 1)]


@pytest.mark.parametrize("kind", [pb.NONE, pb.ZSTD])
def test_a_batch_in_a_chunked_message_is_refused(kind):
    plain = encode_batch_messages(columns([b"a", b"b"])).buffer.tobytes()
    chunked = {"num_messages_in_batch": 2, "num_chunks_from_msg": 2}
    with pytest.raises(CorruptError, match="a batch in a chunked message"):
        decoded([[entry_of(5, 6, plain, compression=kind, **chunked)]])


@pytest.mark.parametrize("corrupt", CORRUPT.values(), ids=CORRUPT)
def test_among_ranges_that_are_decoded_together_the_right_one_is_named(corrupt, caplog):
    entries = [[single_entry(5, 1, b"a")], [corrupt], [batch_entry(5, 2, columns([b"b"]))], [corrupt]]
    topics = [TOPIC.base.of_partition(number) for number in range(40, 45)]
    ranges = [
        RangeEntries(topic, [Entries.of(each)])
        for topic, each in zip(topics, [[single_entry(5, 0, b"first")], *entries], strict=True)
    ]
    with pytest.raises(CorruptError, match=f"{topics[2]}; message 5:6"):
        decoded_ranges(ranges)
    found = decoded_ranges(ranges, leave_out_corrupt=True)
    assert [value for part in found for value in part.value.to_pylist()] == [b"first", b"a", b"b"]
    assert [each for part in found for each in part.topics] == [(topics[n], 1) for n in (0, 1, 3)]
    assert [str(topic) in caplog.text for topic in topics] == [False, False, True, False, True]
