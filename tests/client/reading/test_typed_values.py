"""Typed values: which version reads which message, what rows become, and what is said of bad ones."""

import json
import pickle
import random
from pathlib import Path

import pyarrow as pa
import pytest

from pulsar_spark.client.reading import typed_values
from pulsar_spark.client.reading.decode import RangeEntries, decode_entries
from pulsar_spark.client.reading.decoded_messages import NO_VERSION
from pulsar_spark.client.reading.typed_values import ReaderSchema, TypedValueReader, changed_fields
from pulsar_spark.errors import ConnectError, SchemaChangedError, SchemaError
from pulsar_spark.ids import TopicName
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats
from pulsar_spark.wire.entry.entries import Entries
from tests.client.reading.csv_values import CsvDecoder, csv, installed
from tests.client.reading.stored_entries import TOPIC, batch_entry, columns, single_entry

OTHER = TopicName.parse("other")
ROOT = Path(__file__).resolve().parents[3]
HISTORY = [csv("a"), csv("a,b"), csv("b,c")]

csv_only = pytest.fixture(autouse=True)(installed)


class Broker:
    """The versions of the topic's schema, and what was asked for."""

    def __init__(self, *history, missing=()):
        self.schemas = {number: each for number, each in enumerate(history) if number not in missing}
        self.asked = []

    def versions_of(self, topic, versions):
        assert topic == TOPIC
        asked = list(versions)
        self.asked.append(asked)
        return {number: self.schemas[number] for number in asked if number in self.schemas}


@pytest.fixture
def broker():
    return Broker(*HISTORY)


def entry(number, version, *values, keys=None):
    """An entry of a version; None for none; an entry of one value is no batch."""
    fields = {} if version is None else {"schema_version": version.to_bytes(8, "big")}
    if len(values) == 1 and values[0] is not None and keys is None:
        return single_entry(5, number, values[0], **fields)
    return batch_entry(5, number, columns(values, keys), **fields)


def messages_of(*entries):
    (messages,) = decode_entries(
        [RangeEntries(TOPIC, [Entries.of(entries)])], max_rows=10_000, max_bytes=2**20
    )
    return messages


def reader_of(broker, version=1, target=None, *, is_pinned=True, **more):
    schema = HISTORY[version]
    pinned = {TOPIC.base: (version, schema)} if is_pinned else {}
    reader = ReaderSchema(schema, pinned)
    return TypedValueReader(
        broker.versions_of, TOPIC, reader, reader.type if target is None else target, **more
    )


def rows_of(values):
    values.column.validate(full=True)
    return values.column.to_pylist()


def ab(a, b):
    return {"a": a, "b": b}


# ---- versions


def test_one_version_is_one_call_and_one_request(broker):
    (values,) = reader_of(broker).read(messages_of(entry(0, 1, b"1,2"), entry(1, 1, b"3,4", None)))
    assert rows_of(values) == [ab(1, 2), ab(3, 4), None]
    assert values.is_bad is None
    assert values.payloads.to_pylist() == [b"1,2", b"3,4", None]
    assert (broker.asked, CsvDecoder.calls) == ([[1]], [3])


@pytest.mark.parametrize("is_pinned", [True, False])
def test_older_and_newer_versions_interleaved_keep_their_order(broker, is_pinned):
    chance = random.Random(3)
    entries, expected = [], []
    for number in range(200):
        version = chance.choice([0, 1, 2])
        own = [[f"{number}"], [f"{number}", "7"], ["8", f"{number}"]][version]
        entries.append(entry(number, version, *[",".join(own).encode()] * chance.randint(1, 3)))
        row = [ab(number, None), ab(number, 7), ab(None, 8)][version]
        expected += [row] * max(1, int(entries[-1].metadata.num_messages_in_batch))
    reader = reader_of(broker, is_pinned=is_pinned)
    (values,) = reader.read(messages_of(*entries))
    assert rows_of(values) == expected
    assert values.is_bad is None
    assert len(CsvDecoder.calls) == 3
    assert sorted(number for asked in broker.asked for number in asked) == [0, 1, 2]
    assert rows_of(*reader.read(messages_of(*entries))) == expected
    assert len(broker.asked) == 1


def test_a_pinned_version_that_is_another_schema_now_is_read_by_that():
    """The topic was deleted and made anew."""
    anew = Broker(csv("b,c"), csv("c,a"))
    messages = messages_of(entry(0, 1, b"1,2"), entry(1, 0, b"3,4"))
    (values,) = reader_of(anew).read(messages)
    assert rows_of(values) == [ab(2, None), ab(None, 3)]
    with pytest.raises(SchemaChangedError, match=r"version 1 of the schema does not fit .*: c"):
        reader_of(anew, refuse_changes=True).read(messages)


def test_a_pinned_version_that_was_deleted_is_read(broker):
    (values,) = reader_of(Broker(*HISTORY, missing=[1])).read(messages_of(entry(0, 1, b"1,2")))
    assert rows_of(values) == [ab(1, 2)]


def test_a_decoder_is_made_once_in_a_process(broker):
    for _ in range(3):
        reader_of(broker).read(messages_of(entry(0, 0, b"1"), entry(1, 2, b"1,2")))
    assert len(typed_values._DECODERS._kept) == 2
    assert len(broker.asked) == 3  # what keeps versions is below


def test_only_the_fields_of_the_target_are_made(broker):
    target = pa.struct([("b", pa.int64())])
    (values,) = reader_of(broker, target=target).read(messages_of(entry(0, 1, b"1,2"), entry(1, 2, b"3,4")))
    assert values.column.type == target
    assert rows_of(values) == [{"b": 2}, {"b": 3}]


def test_a_target_that_the_schema_does_not_have():
    reader = ReaderSchema(HISTORY[1])
    reader.check(pa.struct([("b", pa.int64())]))
    with pytest.raises(SchemaError, match="c is no field"):
        reader.check(pa.struct([("c", pa.int64())]))


@pytest.mark.parametrize("is_default", [True, False])
def test_a_schema_that_the_user_gave_is_the_one_of_all_versions(broker, is_default):
    """Messages without a version, and of one that is gone, are of the schema itself, if the user says so."""
    reader = ReaderSchema(HISTORY[1], is_given=True, is_default=is_default)
    (values,) = TypedValueReader(broker.versions_of, TOPIC, reader, reader.type).read(
        messages_of(entry(0, None, b"1,2"), entry(1, 2, b"3,4"), entry(2, 99, b"5,x"), entry(3, 0, b"7"))
    )
    assert rows_of(values) == [ab(1, 2) if is_default else None, ab(None, 3), None, ab(7, None)]
    assert values.is_bad.tolist() == [not is_default, False, True, False]
    error = values.error(2, is_fatal=True)
    assert ("field b is x" if is_default else "does not have this version") in error.what
    assert "load()" not in str(error)


@pytest.mark.parametrize("kind", [SchemaType.PROTOBUF, SchemaType.EXTERNAL])
def test_a_schema_that_the_user_gave_stands_for_those_that_decode_nothing(kind):
    reader = ReaderSchema(HISTORY[1], is_given=True, is_default=True)
    values_of = TypedValueReader(Broker(Schema(kind, b"x")).versions_of, TOPIC, reader, reader.type)
    (values,) = values_of.read(messages_of(entry(0, 0, b"1,2")))
    assert rows_of(values) == [ab(1, 2)]


def test_it_travels_to_tasks():
    reader = ReaderSchema(HISTORY[1], {TOPIC.base: (1, HISTORY[1])})
    assert pickle.loads(pickle.dumps(reader)) == reader


# ---- several topics


def avro(kind, **field):
    definition = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind, **field}]}
    return Schema(SchemaType.AVRO, json.dumps(definition).encode())


def enum(*symbols):
    return {"type": "enum", "name": "E", "symbols": list(symbols)}


@pytest.fixture
def all_kinds(monkeypatch):
    monkeypatch.setattr(typed_values, "formats", formats)


@pytest.mark.parametrize(
    ("of_first", "of_other", "values", "rows"),
    [
        (avro("long"), avro(["null", "long"], default=None), [b"\0", b"\2\4"], [None, 2]),
        (avro("string"), avro(enum("P")), [b"\0"], ["P"]),
        (avro(enum("P")), avro(enum("P", "Q")), [b"\2"], ["Q"]),
        (avro("bytes"), avro({"type": "fixed", "name": "F", "size": 2}), [b"ab"], [b"ab"]),
    ],
)
@pytest.mark.parametrize("is_pinned", [True, False])
@pytest.mark.usefixtures("all_kinds")
def test_each_topic_is_read_by_a_schema_of_its_own(of_first, of_other, values, rows, is_pinned):
    pinned = {OTHER: (0, of_first), **({TOPIC.base: (0, of_other)} if is_pinned else {})}
    reader = ReaderSchema(of_first, pinned)
    typed = TypedValueReader(Broker(of_other).versions_of, TOPIC, reader, reader.type)
    (read,) = typed.read(messages_of(entry(0, 0, *values)))
    assert (rows_of(read), read.is_bad) == ([{"x": row} for row in rows], None)


@pytest.mark.usefixtures("all_kinds")
def test_types_of_a_topic_are_promoted_to_the_columns():
    reader = ReaderSchema(avro("int"), {OTHER: (0, avro("int")), TOPIC.base: (1, avro("long"))})
    target = pa.struct([("x", pa.int64())])
    typed = TypedValueReader(Broker(avro("int")).versions_of, TOPIC, reader, target)
    assert rows_of(*typed.read(messages_of(entry(0, 1, b"\2"), entry(1, 0, b"\4")))) == [{"x": 1}, {"x": 2}]


# ---- bad rows


def test_a_bad_row_between_good_ones_is_named_with_its_field(broker):
    (values,) = reader_of(broker).read(
        messages_of(entry(0, 1, b"1,2"), entry(7, 1, b"3,4", b"5,x", b"6,7"), entry(8, 0, b"9,9"))
    )
    assert rows_of(values) == [ab(1, 2), ab(3, 4), None, ab(6, 7), None]
    assert values.is_bad.tolist() == [False, False, True, False, True]
    error = values.error(2, is_fatal=True)
    assert str(error) == (
        "[PULSAR_SCHEMA] a value of schema version 1 cannot be read: field b is x; topic "
        "persistent://public/default/t-partition-3; message 5:7:1. Set mode to PERMISSIVE or DROPMALFORMED "
        "to continue without such messages, or start after them with startingOffsets"
    )
    assert values.error(2, is_fatal=False).what == error.what
    advice = values.error(2, is_fatal=False).advice
    assert advice == "See docs/schemas.md for what may be wrong with such messages"
    assert "version 0 cannot be read: bytes are left over; " in str(values.error(4, is_fatal=True))
    assert values.error(4, is_fatal=True).message_id == "5:8"


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (None, f"a value cannot be read: {NO_VERSION}"),
        (3, "a value of schema version 3 cannot be read: the topic does not have this version of its schema"),
        (2, "a value of schema version 2 cannot be read: values of JSON are not read as AVRO"),
    ],
)
@pytest.mark.parametrize("has_good_rows", [True, False])
def test_rows_that_nothing_reads(version, words, has_good_rows):
    broker = Broker(csv("a"), csv("a,b"), csv("a,b", SchemaType.JSON))
    good = [entry(0, 1, b"1,2")] if has_good_rows else []
    (values,) = reader_of(broker).read(messages_of(*good, entry(1, version, b"3,4", None, b"")))
    assert rows_of(values) == [ab(1, 2)] * has_good_rows + [None] * 3
    assert values.is_bad.tolist() == [False] * has_good_rows + [True, False, True]
    assert values.column.type == ReaderSchema(HISTORY[1]).type
    assert words in str(values.error(len(good), is_fatal=True))


def test_tombstones_that_nothing_reads_are_rows_of_nulls(broker):
    (values,) = reader_of(broker).read(messages_of(entry(0, None, None, None)))
    assert (rows_of(values), values.is_bad) == ([None, None], None)


# ---- deletions by clients that cannot send a null


def pair(encoding, value):
    properties = {"kv.encoding.type": encoding, "key.schema.type": "INT32", "value.schema.type": value}
    return Schema(SchemaType.KEY_VALUE, bytes(8), properties)


KEY, KEY_1 = (7).to_bytes(4, "big"), (1).to_bytes(4, "big")
INLINE = (4).to_bytes(4, "big") + KEY_1 + (4).to_bytes(4, "big") + KEY
# A schema, a value of it, the row of the value, and of a deletion.
DELETED = {
    "AVRO": (avro("int"), b"\2", {"x": 1}, None),
    "JSON": (Schema(SchemaType.JSON, avro("int").data), b'{"x":1}', {"x": 1}, None),
    "INT32": (Schema(SchemaType.INT32), KEY, 7, None),
    "INLINE": (pair("INLINE", "INT32"), INLINE, {"key": 1, "value": 7}, None),
    "SEPARATED": (pair("SEPARATED", "INT32"), KEY_1, {"key": 7, "value": 1}, {"key": 7, "value": None}),
}


def read_as(schema, *entries):
    typed = TypedValueReader(
        Broker(schema).versions_of, TOPIC, ReaderSchema(schema), formats.column_type(schema)
    )
    (values,) = typed.read(messages_of(*entries))
    return values


@pytest.mark.parametrize(("schema", "value", "row", "deleted"), DELETED.values(), ids=DELETED.keys())
@pytest.mark.usefixtures("all_kinds")
def test_an_empty_payload_with_a_key_is_a_deletion(schema, value, row, deleted):
    """In batches and alone, beside values, tombstones and bad rows; without a key it is bad."""
    fields = {"schema_version": bytes(8), "partition_key": b"AAAABw==", "partition_key_b64_encoded": True}
    values = read_as(
        schema,
        entry(0, 0, value, b"", None, b"\xff", keys=[KEY] * 4),
        entry(1, 0, b"", value, keys=[None, KEY]),
        single_entry(5, 2, b"", **fields),
    )
    assert rows_of(values) == [row, deleted, deleted, None, None, row, deleted]
    assert values.is_bad.tolist() == [False, False, False, True, True, False, False]
    assert values.payloads.to_pylist() == [value, None, None, b"\xff", b"", value, None]
    assert values.error(4, is_fatal=True).message_id == "5:1:0"


@pytest.mark.usefixtures("all_kinds")
def test_a_deletion_needs_a_key_that_is_a_value_where_keys_are_values():
    values = read_as(pair("SEPARATED", "INT32"), entry(0, 0, b"", KEY, keys=[b"no", KEY]))
    assert (rows_of(values), values.is_bad.tolist()) == ([None, {"key": 7, "value": 7}], [True, False])
    assert "key: 2 bytes" in values.error(0, is_fatal=True).what


@pytest.mark.usefixtures("all_kinds")
def test_an_empty_payload_that_is_a_value_is_no_deletion():
    for schema, row in (
        (Schema(SchemaType.STRING), ""),
        (pair("SEPARATED", "STRING"), {"key": 7, "value": ""}),
        (Schema(SchemaType.AVRO, b'{"type": "record", "name": "R", "fields": []}'), {}),
    ):
        values = read_as(schema, entry(0, 0, b"", None, keys=[KEY, KEY]))
        assert (rows_of(values)[0], values.is_bad) == (row, None)
        assert values.payloads.to_pylist() == [b"", None]


def test_deletions_need_no_version(broker):
    (values,) = reader_of(broker).read(messages_of(entry(0, None, b"", b"", keys=[b"k", None])))
    assert (rows_of(values), values.is_bad.tolist()) == ([None, None], [False, True])


def test_a_version_that_was_deleted():
    broker = Broker(*HISTORY, missing=[0, 2])
    reader = reader_of(broker)
    messages = messages_of(entry(0, 0, b"1"), entry(1, 1, b"1,2"), entry(2, 2, b"1,2"))
    for _ in range(2):
        assert next(reader.read(messages)).is_bad.tolist() == [True, False, True]
    assert broker.asked == [[0, 1, 2]]


def test_made_up_versions_are_asked_for_together_and_not_remembered_without_end(broker, monkeypatch):
    monkeypatch.setattr(typed_values, "_MAX_VERSIONS", 50)
    reader = reader_of(broker)
    for first in range(10, 1000, 40):
        made_up = [entry(number, number, b"1,2") for number in range(first, first + 40)]
        (values,) = reader.read(messages_of(entry(0, 1, b"1,2"), entry(1, 0, b"3"), *made_up))
        assert rows_of(values) == [ab(1, 2), ab(3, None), *[None] * 40]
        assert len(reader._readers) <= 50 + 42
    assert len(broker.asked) == 25
    assert max(map(len, broker.asked)) == 42


def test_a_broker_that_cannot_be_asked_is_no_bad_row():
    def fail(topic, versions):
        raise ConnectError("it is gone")

    reader = ReaderSchema(HISTORY[1])
    with pytest.raises(ConnectError):
        TypedValueReader(fail, TOPIC, reader, reader.type).read(messages_of(entry(0, 1, b"1,2")))


def test_keys_are_given_to_schemas_of_keys_and_values():
    broker = Broker(csv("k,v", SchemaType.KEY_VALUE))
    reader = ReaderSchema(broker.schemas[0])
    read = TypedValueReader(broker.versions_of, TOPIC, reader, reader.type).read
    good = entry(0, 0, b"1", None, None, b"2", keys=[b"7", b"8", None, b"x"])
    (values,) = read(messages_of(good, entry(1, None, None, None, keys=[b"9", None])))
    assert rows_of(values) == [{"k": 7, "v": 1}, {"k": 8, "v": None}, None, None, None, None]
    # A key that cannot be read is lost, so a tombstone with one is bad.
    assert values.is_bad.tolist() == [False, False, False, True, True, False]
    assert "field k is x" in str(values.error(3, is_fatal=True))


# ---- schemaEvolutionMode=restart


def test_a_newer_version_with_more_fields_ends_the_read_where_it_is_to(broker):
    reader = reader_of(broker, version=1, refuse_changes=True)
    assert rows_of(*reader.read(messages_of(entry(0, 0, b"1"), entry(1, 1, b"1,2")))) == [
        ab(1, None),
        ab(1, 2),
    ]
    for _ in range(2):
        with pytest.raises(SchemaChangedError) as caught:
            reader.read(messages_of(entry(0, 1, b"1,2"), entry(1, 0, b"3"), entry(2, 2, b"4,5", b"6,7")))
        assert str(caught.value).startswith(
            "[PULSAR_SCHEMA_CHANGED] version 2 of the schema does not fit this query's columns: c; "
            "topic persistent://public/default/t-partition-3; message 5:2:0. Call load() and start"
        )
    with pytest.raises(SchemaChangedError, match="message 5:4"):
        reader.read(messages_of(entry(4, 2, b"1,2")))


def test_a_newer_version_without_more_fields_does_not():
    broker = Broker(csv("a"), csv("a,b"), csv("b,a"), csv("b"), csv("?"))
    reader = reader_of(broker, refuse_changes=True)
    (values,) = reader.read(messages_of(entry(0, 2, b"1,2"), entry(1, 3, b"3"), entry(2, 4, b"9")))
    assert rows_of(values)[:2] == [ab(2, 1), ab(None, 3)]


def test_an_older_version_with_more_fields_does_not():
    broker = Broker(csv("a,b,c"), csv("a,b"))
    reader = reader_of(broker, refuse_changes=True)
    assert rows_of(*reader.read(messages_of(entry(0, 0, b"1,2,3")))) == [ab(1, 2)]


def test_changed_fields_are_found_at_any_depth():
    inner, wider = pa.struct([("x", pa.int8())]), pa.struct([("x", pa.int8()), ("y", pa.int8())])

    def whole(kind):
        return pa.struct(
            [
                ("s", kind),
                ("l", pa.list_(kind)),
                ("m", pa.map_(pa.string(), pa.list_(kind))),
                ("i", pa.int8()),
            ]
        )

    assert list(changed_fields(whole(inner), whole(wider))) == ["s.y", "l.y", "m.y"]
    assert list(changed_fields(whole(wider), whole(inner))) == []
    assert list(changed_fields(inner, pa.string())) == ["the value as string"]


def test_changed_types_are_found_where_they_do_not_hold_the_new_values():
    def of(kind):
        return pa.struct([("l", pa.list_(kind))])

    assert list(changed_fields(of(pa.int32()), of(pa.int64()))) == ["l as bigint"]
    assert list(changed_fields(of(pa.float64()), of(pa.int64()))) == []
    assert list(changed_fields(of(pa.string()), of(pa.binary()))) == ["l as binary"]


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON])
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("int", "long", "x as bigint"),
        ("long", ["null", "long"], "x as null"),
        (enum("P"), enum("P", "Q"), "x as 'Q'"),
        ("string", ["string", "int"], "x as struct"),
    ],
)
@pytest.mark.usefixtures("all_kinds")
def test_a_newer_version_whose_values_the_columns_cannot_hold_ends_the_read(kind, old, new, words):
    old, new = (Schema(kind, avro(each).data) for each in (old, new))
    reader = ReaderSchema(old, {TOPIC.base: (0, old)})
    typed = TypedValueReader(Broker(old, new).versions_of, TOPIC, reader, reader.type, refuse_changes=True)
    with pytest.raises(SchemaChangedError, match=f"does not fit this query's columns: {words}"):
        typed.read(messages_of(entry(0, 1, b"\0")))


@pytest.mark.usefixtures("all_kinds")
def test_a_newer_version_that_does_not_resolve_ends_the_read():
    old, new = (avro({"type": "fixed", "name": "F", "size": size}) for size in (2, 3))
    reader = ReaderSchema(old, {TOPIC.base: (0, old)})
    typed = TypedValueReader(Broker(old, new).versions_of, TOPIC, reader, reader.type, refuse_changes=True)
    with pytest.raises(SchemaChangedError, match="columns: x as fixed 'F' of 3 bytes"):
        typed.read(messages_of(entry(0, 1, b"abc")))


@pytest.mark.usefixtures("all_kinds")
def test_a_newer_version_that_the_columns_hold_does_not_end_the_read():
    old, new = avro(["null", "long"]), avro("int")
    reader = ReaderSchema(old, {TOPIC.base: (0, old)})
    typed = TypedValueReader(Broker(old, new).versions_of, TOPIC, reader, reader.type, refuse_changes=True)
    assert rows_of(*typed.read(messages_of(entry(0, 1, b"\2")))) == [{"x": 1}]


@pytest.mark.usefixtures("all_kinds")
def test_a_bad_row_of_an_older_version_may_be_read_by_its_columns():
    old, new = avro("int"), avro("string")
    reader = ReaderSchema(new, {TOPIC.base: (1, new)})
    typed = TypedValueReader(Broker(old, new).versions_of, TOPIC, reader, reader.type)
    (values,) = typed.read(messages_of(entry(0, 0, b"\2"), entry(1, 1, b"")))
    older, same = (values.error(row, is_fatal=True).advice for row in range(2))
    assert older.startswith(
        "The message is older than the columns, which are those of version 1: schemaVersion=0"
    )
    assert same.startswith("Set mode to PERMISSIVE")


@pytest.mark.usefixtures("all_kinds")
def test_a_bad_row_of_a_newer_version_may_be_read_after_load():
    old, new = avro("int"), avro("long")
    reader = ReaderSchema(old, {TOPIC.base: (0, old)})
    typed = TypedValueReader(Broker(old, new).versions_of, TOPIC, reader, reader.type)
    (values,) = typed.read(messages_of(entry(0, 0, b""), entry(1, 1, b"\2"), entry(2, 2, b"\2")))
    advices = [values.error(row, is_fatal=True).advice for row in range(3)]
    again = "Call load() and start the query again: the message's version is newer "
    assert [advice.startswith(again) for advice in advices] == [False, True, False]
    warned = values.error(1, is_fatal=False).advice
    assert warned.startswith(again)
    assert "mode" not in warned
