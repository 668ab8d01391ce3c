"""What a producer's entries say, and what is refused before anything is sent."""

import numpy as np
import pytest

from pulsar_spark.errors import CryptoError, SendError
from pulsar_spark.ids import MessageId, TxnId
from pulsar_spark.protocol.writing.batcher import Batch
from pulsar_spark.protocol.writing.packer import METADATA_ROOM, Packer
from pulsar_spark.protocol.writing.pending import EntryKind
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import EncodedSingle, EncodedSingles
from pulsar_spark.wire.entry.codecs import decompress
from pulsar_spark.wire.entry.encode_metadata import schema_version_field
from pulsar_spark.wire.entry.entries import Entries, Entry
from pulsar_spark.wire.entry.entry_fields import EntryField
from pulsar_spark.wire.entry.origin import Origin, decode_origin, encode_origin
from pulsar_spark.wire.frames import decode_payload_section
from tests.fake_topics import signed_metadata
from tests.wire.columns.batch_rows import message

TOPIC = "persistent://a/b/t"
LIMIT = 10_000
ROOM = LIMIT - METADATA_ROOM
HEAD = 7  # bytes before a value of 128 to 16,383 bytes in a batch
INCOMPRESSIBLE = np.random.default_rng(1).bytes(100_000)


def packer(compression=pb.NONE, *, chunking=False, chunk_max=None, encryption=None, **kind):
    made = Packer(
        TOPIC,
        compression,
        chunking=chunking,
        chunk_max_message_size=chunk_max,
        encryption=encryption,
        **kind,
    )
    made.producer_name, made.max_message_size, made.next_sequence_id = "p", LIMIT, 7
    made.attempt = "1"
    return made


def single(value, **fields):
    metadata = pb.MessageMetadata(**fields).SerializePartialToString()
    return EncodedSingle(memoryview(metadata), memoryview(value))


def encoded(*messages):
    """Messages by column."""
    metadata = [bytes(one.metadata) for one in messages]
    payloads = [bytes(one.payload) for one in messages]
    bounds, ends = (np.cumsum([0, *map(len, parts)]) for parts in (metadata, payloads))
    return EncodedSingles(b"".join(metadata), bounds, b"".join(payloads), ends[:-1], ends[1:])


def stored(entry):
    return decode_payload_section(memoryview(entry.head + bytes(entry.payload)))


def origin_of(metadata, payload=b""):
    """The origin that an entry says, as readers find it; None for none."""
    (field,) = Entries.of([Entry(1, 0, metadata, b"", None)]).texts(EntryField.ORIGIN).to_pylist()
    return (
        None if field is None else decode_origin(field, b"secret", TOPIC, payload, signed_metadata(metadata))
    )


def first_origin():
    """Makes origins of first entries."""
    return lambda payload, metadata: encode_origin(Origin(3, 1, 0), b"secret", TOPIC, payload, metadata)


def batch(*values, ids=None):
    return batch_of(*map(message, values), ids=ids)


def batch_of(*messages, ids=None):
    return Batch(tuple(messages), len(messages), sum(map(len, messages)), sequence_ids=ids)


# ---- sequence ids


def test_messages_are_numbered():
    made = packer()
    entries = [made.batch(batch(b"a", b"b", b"c"), 5), *made.singles([single(b"d")], 5)]
    entries.append(made.batch(batch(b"e"), 5))
    assert [(entry.sequence_id, entry.highest_sequence_id) for entry in entries] == [
        (7, 9),
        (10, 10),
        (11, 11),
    ]
    assert [entry.kind for entry in entries] == [EntryKind.BATCH, EntryKind.SINGLE, EntryKind.BATCH]
    told = [stored(entry).metadata for entry in entries]
    assert [(one.sequence_id, one.highest_sequence_id) for one in told] == [(7, 9), (10, 0), (11, 11)]
    assert [one.num_messages_in_batch for one in told] == [3, 1, 1]
    assert {one.publish_time for one in told} == {5}


def test_given_ids_are_taken_and_the_next_are_behind_them():
    made = packer()
    first = made.batch(batch(b"a", b"b", ids=(20, 29)), 5)
    (second,) = made.singles([single(b"c")._replace(sequence_ids=(40, 40))], 5)
    (old,) = made.singles([single(b"d")._replace(sequence_ids=(3, 3))], 5)
    assert (first.sequence_id, first.highest_sequence_id) == (20, 29)
    assert stored(first).metadata.highest_sequence_id == 29
    assert stored(second).metadata.sequence_id == second.sequence_id == 40
    assert old.sequence_id == 3
    assert made.batch(batch(b"e"), 5).sequence_id == 41


# ---- schemas


@pytest.mark.parametrize("transaction", [None, TxnId(3, 5)])
def test_all_entries_say_the_version_of_their_schema_and_their_origin(transaction):
    """Also each chunk."""
    made = packer(chunking=True)
    made.version_field, made.transaction = schema_version_field(b"version!"), transaction
    made.origin = lambda *_: encode_origin(Origin(3, 1, 0, MessageId(7, 8), 9), b"secret", TOPIC)
    entries = [made.batch(batch(b"a", b"b"), 5)]
    entries += made.singles([single(b"c", event_time=9), single(INCOMPRESSIBLE)], 5)
    assert len(entries) > 5
    for entry in entries:
        metadata = stored(entry).metadata
        assert metadata.schema_version == b"version!"
        assert metadata.HasField("txnid_most_bits") == (transaction is not None)
        assert entry.transaction == transaction
        assert metadata.num_messages_in_batch == entry.messages
        assert origin_of(metadata) == Origin(3, 1, 0, MessageId(7, 8), 9)
    assert stored(entries[1]).metadata.event_time == 9


def test_an_origin_is_that_of_the_entries_packed_from_then_on():
    made = packer()
    before = made.batch(batch(b"a"), 5)
    made.origin = first_origin()
    after = made.batch(batch(b"a"), 5)
    made.origin = None
    without = made.batch(batch(b"a"), 5)
    found = [origin_of(*stored(entry)[:2]) for entry in (before, after, without)]
    assert found == [None, Origin(3, 1, 0), None]


@pytest.mark.parametrize("kind", ["batch", "single", "compressed", "encrypted", "chunks"])
def test_an_origin_may_be_of_one_entry_as_it_is_stored(kind):
    made = packer(
        chunking=kind == "chunks",
        compression=pb.LZ4 if kind == "compressed" else pb.NONE,
        encryption=Reversing() if kind == "encrypted" else None,
    )
    made.origin = first_origin()
    value = INCOMPRESSIBLE if kind == "chunks" else b"a" * 100
    entries = list([made.batch(batch(value), 5)] if kind == "batch" else made.singles([single(value)], 5))
    for entry in entries:
        metadata, payload = stored(entry)[:2]
        assert origin_of(metadata, payload) == Origin(3, 1, 0)
        assert origin_of(metadata, bytes(payload) + b"more") is None
        metadata.partition_key = b"other"
        assert (origin_of(metadata, payload) is None) == (kind != "chunks")


class Reversing:
    """Stands for encryption."""

    room = 10

    def seal(self, payload):
        return b"", bytes(payload)[::-1]


# ---- keys


@pytest.mark.parametrize("key_based", [True, False])
@pytest.mark.parametrize(
    "keys",
    [
        {"partition_key": b"k"},
        {"partition_key": b"aw==", "partition_key_b64_encoded": True},
        {"ordering_key": b"\xff"},
        {"partition_key": b"", "ordering_key": b""},
        {},
    ],
)
def test_a_batch_has_the_keys_of_its_first_message(keys, key_based):
    """As in the Java client; what else the messages have stays in them."""
    first = message(b"a", event_time=9, sequence_id=4, **keys)
    metadata = stored(packer(key_based=key_based).batch(batch_of(first, message(b"b")), 5)).metadata
    fields = ("partition_key", "ordering_key")
    assert {name: getattr(metadata, name) for name in fields if metadata.HasField(name)} == {
        name: keys[name] for name in fields if name in keys
    }
    assert metadata.partition_key_b64_encoded == keys.get("partition_key_b64_encoded", False)
    assert not metadata.HasField("event_time")
    assert metadata.sequence_id == 7


@pytest.mark.parametrize("key", ["partition_key", "ordering_key"])
def test_without_room_for_its_key_a_batch_goes_without_it(key):
    made, large = packer(), b"k" * (LIMIT // 3)
    fits = made.batch(batch_of(message(b"a", **{key: large})), 5)
    assert getattr(stored(fits).metadata, key) == large
    full = message(b"x" * (ROOM - len(large) - 20), **{key: large})
    assert len(full) <= ROOM
    made.check_messages(memoryview(full), np.array([0, len(full)]))
    entry = made.batch(batch_of(full), 5)
    assert entry.size <= LIMIT
    assert not stored(entry).metadata.HasField(key)


@pytest.mark.parametrize("compression", [pb.NONE, pb.LZ4])
@pytest.mark.parametrize("spare", [-1, 0])
def test_a_message_must_have_room_for_its_key_twice_where_batches_have_one_key(compression, spare):
    made = packer(compression, key_based=True)
    key = INCOMPRESSIBLE[:3000]
    size = ROOM - (len(key) - METADATA_ROOM // 2) + spare
    value = INCOMPRESSIBLE[5000 : 5000 + size - len(key) - 10]
    large = message(value, partition_key=key)
    assert len(large) == size
    made.check_messages(memoryview(b"small" + large), np.array([0, 5, 5 + size]))
    entry = made.batch(batch_of(large), 5)
    assert entry.size <= LIMIT
    assert stored(entry).metadata.partition_key == key
    assert stored(entry).metadata.compression == pb.NONE, "it would be larger"
    large = message(value + b"xx", partition_key=key)
    with pytest.raises(SendError, match=f"{len(large)} bytes"):
        made.check_messages(memoryview(large), np.array([0, len(large)]))


def test_no_key_is_shown_of_those_that_are_encrypted_unless_brokers_must_see_it():
    keyed = batch_of(message(b"a", partition_key=b"secret", ordering_key=b"s"))
    for key_based in (True, False):
        metadata = stored(packer(encryption=Reversed(), key_based=key_based).batch(keyed, 5)).metadata
        assert metadata.HasField("partition_key") == metadata.HasField("ordering_key") == key_based


# ---- by column


def test_bytes_between_payloads_are_not_sent():
    """There may be some below nulls."""
    ends = 2 * np.arange(20) + 1
    messages = EncodedSingles(b"", np.zeros(21, np.int64), b"x?" * 20, ends - 1, ends)
    assert [bytes(entry.payload) for entry in packer().singles(messages, 5)] == [b"x"] * 20


@pytest.mark.parametrize(
    ("field", "value"), [("version_field", schema_version_field(b"2")), ("producer_name", "q")]
)
def test_entries_say_what_holds_when_they_are_made(field, value):
    made = packer()
    made.version_field = schema_version_field(b"1")
    packed = made.singles(encoded(single(b"x"), single(b"y")), 5)
    found = [next(packed)]
    setattr(made, field, value)
    found += packed
    said = [(entry.producer_name, entry.schema_version) for entry in (stored(one).metadata for one in found)]
    assert said == [(b"p", b"1"), (made.producer_name.encode(), made.version_field[-1:])]
    assert [entry.sequence_id for entry in found] == [7, 8]


def test_messages_with_ids_of_their_own_keep_them():
    own = np.arange(100)[::-1] * 3
    entries = packer().singles(encoded(*[single(b"a")] * 100).with_ids(own), 5)
    assert [entry.sequence_id for entry in entries] == own.tolist()


# ---- sizes


@pytest.mark.parametrize("compression", [pb.NONE, pb.LZ4])
def test_what_is_too_large_is_refused_with_its_topic_and_size(compression):
    value = INCOMPRESSIBLE[: ROOM + 1]
    made = packer(compression)
    for refuse in (
        lambda: made.check_singles(encoded(single(b"small"), single(value))),
        lambda: made.check_messages(memoryview(b"small" + value), np.array([0, 5, 5 + len(value)])),
    ):
        with pytest.raises(
            SendError, match=rf"{ROOM + 1} bytes.*{LIMIT}.*persistent://a/b/t.*chunkingEnabled"
        ):
            refuse()


def test_what_is_small_enough_once_compressed_passes():
    value = b"x" * 50_000
    made = packer(pb.LZ4)
    made.check_singles(encoded(single(value)))
    made.check_messages(memoryview(value), np.array([0, len(value)]))
    (entry,) = made.singles([single(value)], 5)
    assert entry.size < LIMIT
    assert made.batch(batch(value), 5).size < LIMIT


def test_what_the_largest_may_have_fits():
    made = packer()
    value = b"x" * (ROOM - 100)
    made.check_singles(encoded(single(value)))
    (entry,) = made.singles([single(value)], 5)
    assert entry.size <= LIMIT
    assert made.batch(batch(b"x" * (ROOM - HEAD)), 5).size <= LIMIT


def test_what_grows_when_it_is_compressed_is_sent_as_it_is():
    value = INCOMPRESSIBLE[: ROOM - HEAD - 1]
    entry = packer(pb.LZ4).batch(batch(value), 5)
    assert stored(entry).metadata.compression == pb.NONE
    assert bytes(stored(entry).payload) == message(value)


@pytest.mark.parametrize("compression", [pb.NONE, pb.LZ4])
def test_a_segments_entry_keeps_its_rows_and_no_rows_beside_them(compression):
    body = memoryview(message(b"a" * 200) + message(b"b" * 300) + message(b"beside"))
    parts = body[: len(message(b"a" * 200))], body[len(message(b"a" * 200)) : -len(message(b"beside"))]
    given = Batch(parts, 2, sum(map(len, parts)))
    entry = packer(compression, keeps_rows=True).batch(given, 5)
    assert isinstance(entry.rows, Batch)
    assert b"".join(entry.rows.parts) == b"".join(parts)
    assert (entry.rows.messages, entry.rows.size) == (2, given.size)
    assert all(getattr(part, "obj", None) is not body.obj for part in entry.rows.parts)
    kept = {id(part): len(part) for part in (entry.head, entry.payload, *entry.rows.parts)}
    assert entry.held == sum(kept.values())


# ---- chunks


@pytest.mark.parametrize("compression", [pb.NONE, pb.ZSTD])
@pytest.mark.parametrize("chunk_max", [None, 3000, 1_000_000])
def test_a_large_message_becomes_chunks(compression, chunk_max):
    made = packer(compression, chunking=True, chunk_max=chunk_max)
    large = single(INCOMPRESSIBLE, partition_key=b"k")
    made.check_singles(encoded(large))
    chunks = list(made.singles([large], 5))
    assert [chunk.kind for chunk in chunks] == [EntryKind.CHUNK] * (len(chunks) - 1) + [EntryKind.LAST_CHUNK]
    assert {chunk.sequence_id for chunk in chunks} == {7}
    assert max(chunk.size for chunk in chunks) <= min(chunk_max or ROOM, ROOM) + 10
    told = [stored(chunk).metadata for chunk in chunks]
    assert {(one.uuid, one.partition_key, one.sequence_id) for one in told} == {(b"p-7-1", b"k", 7)}
    assert {one.uncompressed_size for one in told} == {len(INCOMPRESSIBLE)}
    payload = b"".join(bytes(chunk.payload) for chunk in chunks)
    assert told[0].total_chunk_msg_size == len(payload)
    whole = decompress(told[0].compression, payload, told[0].uncompressed_size, len(INCOMPRESSIBLE))
    assert bytes(whole) == INCOMPRESSIBLE
    assert next(made.singles([single(b"next")], 5)).sequence_id == 8


def test_a_small_message_is_no_chunk():
    (entry,) = packer(chunking=True).singles([single(b"small")], 5)
    assert entry.kind is EntryKind.SINGLE
    assert not stored(entry).metadata.HasField("uuid")


def test_properties_cannot_be_cut_into_chunks():
    made = packer(chunking=True)
    large = single(b"x" * LIMIT, ordering_key=b"k" * LIMIT)
    with pytest.raises(SendError, match="persistent://a/b/t"):
        made.check_singles(encoded(large))
    with pytest.raises(SendError, match="persistent://a/b/t"):
        list(made.singles([large], 5))


# ---- encryption


class Reversed:
    """Stands for encryption: anyone can see what it did."""

    room = 12

    def seal(self, payload):
        fields = pb.MessageMetadata(encryption_param=b"0123").SerializePartialToString()
        return fields, b"<" + bytes(payload)[::-1] + b">"


def encrypting(**options):
    return packer(**options, encryption=Reversed())


def test_batches_and_single_messages_are_encrypted_after_compression():
    for compression in (pb.NONE, pb.ZSTD):
        made = encrypting(compression=compression)
        entries = [
            made.batch(batch(b"a" * 100, b"b"), 5),
            *made.singles([single(b"c", partition_key=b"k")], 5),
        ]
        for entry, value in zip(entries, [message(b"a" * 100) + message(b"b"), b"c"], strict=True):
            metadata, payload, *_ = stored(entry)
            assert metadata.encryption_param == b"0123"
            assert metadata.uncompressed_size in (0, len(value))
            assert decompress(compression, bytes(payload[1:-1])[::-1], len(value), 1000) == value


def test_each_chunk_is_encrypted_by_itself():
    made = encrypting(chunking=True)
    entries = list(made.singles([single(INCOMPRESSIBLE)], 5))
    assert all(entry.size <= LIMIT for entry in entries)
    parts = []
    for entry in entries:
        metadata, payload, *_ = stored(entry)
        assert metadata.encryption_param == b"0123"
        assert metadata.total_chunk_msg_size == len(INCOMPRESSIBLE)
        parts.append(bytes(payload[1:-1])[::-1])
    assert b"".join(parts) == INCOMPRESSIBLE


def test_a_chunk_is_no_larger_than_it_may_be():
    made = encrypting(chunking=True, chunk_max=1000)
    sizes = {len(stored(entry).payload) for entry in made.singles([single(INCOMPRESSIBLE)], 5)}
    assert max(sizes) <= 1000


def test_encryption_takes_room():
    made = encrypting()
    assert made.room == METADATA_ROOM + 12
    with pytest.raises(SendError, match=f"with {METADATA_ROOM + 12} bytes for headers"):
        made.check_singles(encoded(single(INCOMPRESSIBLE[: ROOM - 11])))
    made.check_singles(encoded(single(INCOMPRESSIBLE[: ROOM - 12])))


class Closed(Reversed):
    def seal(self, payload):
        raise CryptoError("no key")


def test_what_cannot_be_encrypted_names_the_topic():
    made = packer(encryption=Closed())
    with pytest.raises(CryptoError, match=r"no key; topic persistent://a/b/t"):
        made.batch(batch(b"a"), 5)
