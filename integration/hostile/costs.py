"""The fuzzer of costs: 2 to 50 entries of up to 64 KiB together take little more than honest ones.

That is at most 2 s of CPU more than honest entries take which have as many messages and uncompressed bytes,
and 200 MB. Such entries decompress to as much as is accepted, or more: few large values or many small ones,
good or bad, of random schemas. They are decoded as a task does it: messages, their columns, values, and the
first error.

    python3 -m integration.hostile.costs FIRST LAST    # the figures of the tasks of these seeds
"""

from __future__ import annotations

import base64
import json
import logging
import random
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from integration.hostile.avro_schemas import Payloads, Schemas, as_json, broken
from pulsar_spark.client import DecodedMessages, RangeEntries, ReaderSchema, TypedValueReader, decode_entries
from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.ids import TopicName
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entries, Entry
from pulsar_spark.wire.wire_values import varint

_SECONDS = 2.0
_MEMORY = 200 << 20  # bytes
_STORED = 64 << 10  # bytes
_TOPIC = TopicName.parse("hostile")
# Bytes of all values of an entry: usual ones; as many as it may have items; more; and nearly all that it may.
_SIZES = (20_000, 100_000, 500_000, 750_000, 1_000_000, 3_000_000, 20_000_000)
_TOTAL = 60_000_000  # bytes of all values of a task, about, so that a task takes seconds
_ROW, _MOST_ROWS = 100, 90_000  # bytes of an honest row, and rows of an honest entry at most
_ROWS = (0, 0, 0, 1, 100, 10_000, 99_000, 130_000)  # 0: no batch

MakeValue = Callable[[int], bytes]


class CostlyError(AssertionError):
    """Entries cost more than they may; the text has their seed."""


def run(seed: int, tasks: int) -> Iterator[int]:
    """Decode the entries of so many tasks; gives how many tasks there were.

    Raises:
        CostlyError: one cost too much.
    """
    warm_up()
    for number in range(tasks):
        one_task(f"{seed}/{number}")
        yield number + 1


def warm_up() -> None:
    """Decode an honest entry of each kind, so that no task pays for imports: up to 90 MiB."""
    for schema, value_of in HONEST.values():
        _cost(_reader(schema), [_packed(value_of(_ROW), 10, pb.ZSTD, [])])


def one_task(seed: str, *, shows: bool = False) -> None:
    """Decode some entries as those of a task; raises CostlyError. If it ``shows``, print what they take."""
    rnd = random.Random(seed)
    kind = rnd.choice(list(KINDS))
    schema, value_of = KINDS[kind](rnd)
    count = rnd.randint(2, 50)
    distinct = [_entry(rnd, value_of, count) for _ in range(rnd.choice((1, 3)))]
    entries = [rnd.choice(distinct)._replace(entry=number) for number in range(count)]
    try:
        took, memory = _cost(_reader(schema), entries)
    except (SchemaError, UnsupportedError):
        return
    if shows:
        print(f"  {seed}: {kind}, {took:.2f} s of CPU, {memory >> 20} MiB", flush=True)
    if took <= _SECONDS and memory <= _MEMORY:
        return
    honest = {id(each.payload): _honest(HONEST[kind], each) for each in distinct}
    usual, _ = _cost(_reader(HONEST[kind][0]), [honest[id(each.payload)] for each in entries])
    if took - usual > _SECONDS or memory > _MEMORY:
        size = sum(each.metadata.uncompressed_size for each in entries)
        what = f"{sum(len(each.payload) for each in entries)} bytes of {kind}, {size} uncompressed"
        raise CostlyError(
            f"seed {seed}: {what}, {count} entries: {took:.1f} s of CPU, honest ones {usual:.1f} s, "
            f"and {memory >> 20} MiB"
        )


def _reader(schema: Schema) -> TypedValueReader:
    reader = ReaderSchema(schema, {_TOPIC: (0, schema)})
    return TypedValueReader(lambda _, __: {}, _TOPIC, reader, reader.type)


def _cost(values: TypedValueReader, entries: Sequence[Entry]) -> tuple[float, int]:
    """Seconds of CPU and bytes of memory that the entries of a task take."""
    before = reset_peak()
    began = time.process_time()
    for messages in decode_entries(
        [RangeEntries(_TOPIC, [Entries.of(entries)])],
        max_rows=10_000,
        max_bytes=6 << 20,
        leave_out_corrupt=True,
    ):
        _read(messages, values)
    return time.process_time() - began, peak() - before


def _read(messages: DecodedMessages, reader: TypedValueReader) -> None:
    """All that rows are made of; each column is let go of before the next."""
    for column in ("key", "properties", "message_id", "sequence_id", "event_time"):
        getattr(messages, column)
    for values in reader.read(messages):
        if values.is_bad is not None and values.is_bad.any():
            str(values.error(int(values.is_bad.argmax()), is_fatal=False))


def _honest(of: tuple[Schema, MakeValue], entry: Entry) -> Entry:
    """An entry of equal rows of some 100 bytes, with as many uncompressed bytes and messages as another."""
    size = entry.metadata.uncompressed_size
    rows = max(entry.metadata.num_messages_in_batch, min(size // _ROW, _MOST_ROWS))
    return _packed(of[1](size // rows), rows, pb.ZSTD, [])


def _entry(rnd: random.Random, value_of: MakeValue, count: int) -> Entry:
    """An entry of values, as large as one of so many may be."""
    stored, most = _STORED // count, _TOTAL // count
    size, rows = min(rnd.choice(_SIZES), most), rnd.choice(_ROWS)
    codec = rnd.choice((pb.ZSTD, pb.ZSTD, pb.ZLIB, pb.LZ4))
    # What does not compress: stored bytes allow for more.
    padding = [pb.KeyValue(key=b"padding", value=rnd.randbytes(rnd.choice((0, 0, stored // 2))))]
    while True:
        value = value_of(size // max(1, rows))
        value = broken(rnd, value) if rnd.random() < 0.2 else value
        rows = min(rows, 2 * most // (len(value) + 1))
        entry = _packed(value, rows, codec, padding)
        if len(entry.payload) + len(padding[0].value) <= stored:
            return entry
        size, rows = size // 2, rows // 2


def _packed(value: bytes, rows: int, codec: pb.CompressionType, padding: Sequence[pb.KeyValue]) -> Entry:
    """An entry of equal values; 0 rows: of one that is no batch."""
    head = pb.SingleMessageMetadata(payload_size=len(value)).SerializeToString()
    plain = (struct.pack(">I", len(head)) + head + value) * rows or value
    payload = _compressed(codec, plain)
    metadata = pb.MessageMetadata(
        producer_name=b"p",
        sequence_id=0,
        publish_time=0,
        schema_version=bytes(8),
        properties=padding,
        compression=codec,
        uncompressed_size=len(plain),
    )
    if rows:
        metadata.num_messages_in_batch = rows
    return Entry(1, 1, metadata, payload, None)


def _compressed(codec: int, plain: bytes) -> bytes:
    if codec == pb.ZLIB:
        return zlib.compress(plain, 9)
    made = pa.Codec("zstd", compression_level=6) if codec == pb.ZSTD else pa.Codec("lz4_raw")
    compressed: bytes = made.compress(plain, asbytes=True)
    return compressed


# ---- kinds: each draws a schema, and what makes a value of about so many bytes


class LargePayloads(Payloads):
    """Draws Avro payloads: of some arrays and maps as many items as there are bytes left.

    Args:
        size: bytes of a payload, about.
    """

    def __init__(self, rnd: random.Random, size: int) -> None:
        super().__init__(rnd)
        self._left = size

    def _blocks(self, schema: Any) -> bytes:
        if self._left < 100 or self._rnd.random() < 0.3:
            return super()._blocks(schema)
        size, self._left = self._left, 0
        is_array = schema["type"] == "array"
        item = b"" if is_array else b"\x02k"
        item += self.of(schema["items" if is_array else "values"])
        count = max(1, size // max(1, len(item)))
        if self._rnd.random() < 0.2:
            return (b"\x02" + item) * count + b"\0"
        return self._varint(count) + item * count + b"\0"


def _avro(rnd: random.Random) -> tuple[Schema, MakeValue]:
    tree = Schemas(rnd, has_nothing=True).root()
    definition = json.dumps(as_json(tree)).encode()
    return Schema(SchemaType.AVRO, definition), lambda size: LargePayloads(rnd, size).of(tree)


class LargeTexts:
    """Draws JSON of Avro's schemas, as ``LargePayloads`` does.

    Args:
        size: characters of a text, about.
    """

    def __init__(self, rnd: random.Random, size: int) -> None:
        self._rnd = rnd
        self._left = size

    def of(self, schema: Any) -> str:
        """The text of a value."""
        rnd = self._rnd
        if isinstance(schema, list):
            return self.of(rnd.choice(schema))
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "record":
            members = [f"{json.dumps(each['name'])}:{self.of(each['type'])}" for each in schema["fields"]]
            if rnd.random() < 0.3:
                rnd.shuffle(members)
            if self._left > 100 and rnd.random() < 0.1:
                members.append(f'"?":{self._many("[]", rnd.choice(("1", "[]", "{}", "[")))}')
            return "{" + ",".join(members) + "}"
        if kind == "array":
            return self._many("[]", None, schema["items"])
        if kind == "map":
            return self._many("{}", None, schema["values"])
        return rnd.choice(('"5"', "5", "5.5", "true", '"' + "\\u0041" * 3 + '"', "null", "[2020,1,1]"))

    def _many(self, around: str, item: str | None, kind: Any = None) -> str:
        size, self._left = self._left, 0
        item = item or self.of(kind)
        count = size // (len(item) + 1) or self._rnd.randrange(3)
        if around == "[]":
            return "[" + ",".join([item] * count) + "]"
        count = min(count, 50_000)  # of different names
        return "{" + ",".join(f'"{number:x}":{item}' for number in range(count)) + "}"


def _json(rnd: random.Random) -> tuple[Schema, MakeValue]:
    tree = Schemas(rnd, has_nothing=True).root()
    definition = json.dumps(as_json(tree)).encode()
    return Schema(SchemaType.JSON, definition), lambda size: LargeTexts(rnd, size).of(tree).encode()


def _key_value(rnd: random.Random) -> tuple[Schema, MakeValue]:
    (key, key_of), (value, value_of) = _avro(rnd), _json(rnd)

    def make(size: int) -> bytes:
        parts = key_of(size // 2), value_of(size // 2)
        return b"".join(struct.pack(">i", len(each)) + each for each in parts)

    return _key_value_of(key, value, rnd.choice(("INLINE", "SEPARATED"))), make


def _key_value_of(key: Schema, value: Schema, encoding: str) -> Schema:
    properties = {"key.schema.type": "AVRO", "value.schema.type": "JSON", "kv.encoding.type": encoding}
    data = b"".join(struct.pack(">i", len(each.data)) + each.data for each in (key, value))
    return Schema(SchemaType.KEY_VALUE, data, properties)


def _plain(rnd: random.Random) -> tuple[Schema, MakeValue]:
    kind = rnd.choice((SchemaType.NONE, SchemaType.STRING, SchemaType.INT32, SchemaType.LOCAL_DATE_TIME))
    value = rnd.choice((b"\0", b"\xff", b"text", bytes(4), bytes(16)))
    return Schema(kind), lambda size: value * max(1, size // len(value) if rnd.random() < 0.5 else 1)


_ONES = (  # fields of the message M of ``_protobuf_schema``, as they are on the wire
    b"\x0a\x00",  # an empty message
    b"\x0a\x02\x0a\x00",
    b"\x0a\x04\x12\x02\x12\x00",  # messages in messages
    b"\x12\x00",
    b"\x12\x01\xff",
    b"\x18\x05",
    b"\x1a\x08" + b"\5" * 8,
    b"\x22\x05\x0a\x01k\x10\x07",
    b"\x2a\x04\x2a\x02\x2a\x00",  # messages that contain themselves
    b"\x2a\x02\x2a\x00",
    b"\x2a\x06\x22\x04\x0a\x00\x10\x07",
    b"\x2a\x04\x12\x00\x12\x00",
    b"\x30\x01",
    b"\x78\x01",  # not in the schema
    b"\x7b\x7c",
)


def _protobuf(rnd: random.Random) -> tuple[Schema, MakeValue]:
    one = rnd.choice(_ONES)
    if rnd.random() < 0.2:
        return _protobuf_schema(), lambda size: b"\x1a" + varint(size) + b"\1" * size
    return _protobuf_schema(is_recursive=one[:1] == b"\x2a"), lambda size: one * (size // len(one))


def _protobuf_schema(*, is_recursive: bool = False) -> Schema:
    kinds, many = FieldDescriptorProto, FieldDescriptorProto.LABEL_REPEATED
    file = FileDescriptorProto(name="f.proto", package="p", syntax="proto3")
    inner, outer = file.message_type.add(name="N"), file.message_type.add(name="M")
    file.enum_type.add(name="E").value.add(name="ZERO", number=0)
    inner.field.add(name="x", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    inner.field.add(name="y", number=2, type=kinds.TYPE_MESSAGE, type_name=".p.O", label=many)
    file.message_type.add(name="O").field.add(name="z", number=1, type=kinds.TYPE_BYTES, label=many)
    outer.field.add(name="a", number=1, type=kinds.TYPE_MESSAGE, type_name=".p.N", label=many)
    outer.field.add(name="s", number=2, type=kinds.TYPE_STRING, label=many)
    outer.field.add(name="n", number=3, type=kinds.TYPE_INT32, label=many)
    entry = outer.nested_type.add(name="MEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    outer.field.add(name="m", number=4, type=kinds.TYPE_MESSAGE, type_name=".p.M.MEntry", label=many)
    if is_recursive:
        outer.field.add(name="r", number=5, type=kinds.TYPE_MESSAGE, type_name=".p.M", label=many)
    outer.field.add(name="e", number=6, type=kinds.TYPE_ENUM, type_name=".p.E", label=many)
    files = base64.b64encode(FileDescriptorSet(file=[file]).SerializeToString()).decode()
    definition = {
        "fileDescriptorSet": files,
        "rootMessageTypeName": "p.M",
        "rootFileDescriptorName": "f.proto",
    }
    return Schema(SchemaType.PROTOBUF_NATIVE, json.dumps(definition).encode())


KINDS: dict[str, Callable[[random.Random], tuple[Schema, MakeValue]]] = {
    "AVRO": _avro,
    "JSON": _json,
    "KEY_VALUE": _key_value,
    "PROTOBUF_NATIVE": _protobuf,
    "no items": _plain,
}


def _honest_record(kind: SchemaType) -> Schema:
    """A schema of records with an id, a name, counts, and items with a name and a count."""
    item = {"type": "record", "name": "I", "fields": _fields(s="string", n="int")}
    fields = _fields(
        id="long",
        name="string",
        counts={"type": "array", "items": "int"},
        items={"type": "array", "items": item},
    )
    return Schema(kind, json.dumps({"type": "record", "name": "R", "fields": fields}).encode())


def _fields(**types: Any) -> list[dict[str, Any]]:
    return [{"name": name, "type": kind} for name, kind in types.items()]


def _avro_row(size: int) -> bytes:
    counts, items = size // 4, size // 9
    texts = varint(2 * items) + b"\x0aitem1\4" * items + b"\0"
    return b"\xd0\x0f" + b"\x0aname1" + varint(2 * counts) + b"\4" * counts + b"\0" + texts


def _json_row(size: int) -> bytes:
    row = {
        "id": 1000,
        "name": "name1",
        "counts": [2] * (size // 8),
        "items": [{"s": "item1", "n": 2}] * (size // 50),
    }
    return json.dumps(row, separators=(",", ":")).encode()


def _inline_row(size: int) -> bytes:
    parts = _avro_row(size // 2), _json_row(size // 2)
    return b"".join(struct.pack(">i", len(each)) + each for each in parts)


# By kind: a schema, and what makes an honest value of about so many bytes.
HONEST: dict[str, tuple[Schema, MakeValue]] = {
    "AVRO": (_honest_record(SchemaType.AVRO), _avro_row),
    "JSON": (_honest_record(SchemaType.JSON), _json_row),
    "PROTOBUF_NATIVE": (
        _protobuf_schema(),
        lambda size: (b"\x0a\x0c\x0a\x0a" + b"n" * 10) * max(1, size // 28) + b"\x12\x0a" + b"s" * 10,
    ),
    "no items": (Schema(SchemaType.STRING), lambda size: b"s" * size),
}
HONEST["KEY_VALUE"] = (_key_value_of(HONEST["AVRO"][0], HONEST["JSON"][0], "INLINE"), _inline_row)


# ---- memory, on Linux; elsewhere nothing is taken


def reset_peak() -> int:
    """Let the peak begin with what is resident now, and return that, in bytes."""
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        return 0
    reset.write_text("5")
    return peak()


def peak() -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    (line,) = [each for each in status.read_text().splitlines() if each.startswith("VmHWM")]
    return int(line.split()[1]) << 10


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # of what is left out
    warm_up()
    failed = 0
    for number in range(int(sys.argv[1]), int(sys.argv[2]) + 1):
        try:
            one_task(str(number), shows=True)
        except CostlyError as error:
            failed += 1
            print(error, flush=True)
    sys.exit(failed > 0)
