"""Values with a schema alone, on one core: payloads to columns, beside other libraries in the same run.

    python3 -m integration bench values [TEXT]    shapes whose name has the text

Avro is compared with fastavro, JSON with orjson where that is installed, else with json. They make Python's
objects, of which PyArrow makes the column. Both sides take turns. Times are CPU time; ratios are medians of
those of each turn. A call decodes what a record batch of the source holds.
"""

from __future__ import annotations

import io
import json
import random
import statistics
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from itertools import cycle
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa

from integration.bench.value_shapes import FLAT, ValueShape, avro_payload, flat_row, shapes
from pulsar_spark.client import DecodedMessages, RangeEntries, ReaderSchema, TypedValueReader, decode_entries
from pulsar_spark.ids import TopicName
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.spark.rows.schema import MAX_TYPED_ROWS
from pulsar_spark.values import formats
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entries, Entry

_BYTES = 6 << 20  # of a record batch
_TURNS = 7
_SECONDS = 0.15  # of one side in a turn, about
_VERSIONS = (100, 1000)
# No other command needs orjson, so the environment may lack it.
_JSON = "orjson" if find_spec("orjson") else "json"
_LOADS: Callable[[bytes], Any] = import_module(_JSON).loads


class Rates(NamedTuple):
    """Rows a second of one shape.

    Attributes:
        size: bytes of a payload.
        ours: median.
        theirs: median.
        ratio: median of the ratios of each turn.
    """

    name: str
    size: int
    ours: float
    theirs: float
    ratio: float


def main(text: str = "") -> int:
    """Measure and print a table."""
    print(f"rows a second of one core (CPU time); JSON beside {_JSON}\n")
    print(f"{'values':42} {'bytes':>6} {'ours':>12} {'theirs':>12} {'ratio':>6}")
    for shape in shapes():
        if text in f"{shape.kind.name} {shape.name}":
            _show(_measured(shape))
    for count in _VERSIONS:
        if text in "versions":
            _show(_of_versions(count))
    return 0


def _show(rates: Rates) -> None:
    print(
        f"{rates.name:42} {rates.size:6} {rates.ours:12,.0f} {rates.theirs:12,.0f} {rates.ratio:6.2f}",
        flush=True,
    )


def _measured(shape: ValueShape) -> Rates:
    rnd = random.Random(1)
    payloads: list[bytes] = []
    size = 0
    while size < _BYTES and len(payloads) < MAX_TYPED_ROWS:
        payloads.append(shape.encode(rnd, len(payloads)))
        size += len(payloads[-1])
    schema = Schema(shape.kind, json.dumps(shape.schema).encode())
    kind = formats.column_type(schema)
    read = formats.decoder(schema, schema, kind)
    values, keys = pa.array(payloads, pa.binary()), pa.nulls(len(payloads), pa.binary())
    parse, finish = _parser(shape), shape.finish or (lambda row: row)

    def ours() -> None:
        assert read.decode(values, keys).is_bad is None

    def theirs() -> None:
        pa.array([finish(parse(each)) for each in payloads], kind)

    expected = pa.array([finish(parse(each)) for each in payloads[:100]], kind)
    assert read.decode(values, keys).column[:100].equals(expected), shape.name
    rates = _beside(ours, theirs, len(payloads))
    return Rates(f"{shape.kind.name} {shape.name}", size // len(payloads), *rates)


def _parser(shape: ValueShape) -> Callable[[bytes], Any]:
    if shape.kind is SchemaType.JSON:
        return _LOADS
    parsed = fastavro.parse_schema(shape.schema)
    has_names = shape.finish is not None
    return lambda payload: fastavro.schemaless_reader(
        io.BytesIO(payload), parsed, None, return_record_name=has_names
    )


def _beside(ours: Callable[[], None], theirs: Callable[[], None], rows: int) -> tuple[float, float, float]:
    """Rates of both, and the ratio."""
    sides = []
    for side in (ours, theirs):
        side()
        sides.append((side, max(1, round(_SECONDS / _taken(side, 1)))))
    turns = [[rows * count / _taken(side, count) for side, count in sides] for _ in range(_TURNS)]
    mine, other = (statistics.median(column) for column in zip(*turns, strict=True))
    return mine, other, statistics.median(own / their for own, their in turns)


def _taken(call: Callable[[], None], count: int) -> float:
    began = time.process_time()
    for _ in range(count):
        call()
    return max(time.process_time() - began, 1e-6)


# ---- versions


def _of_versions(count: int) -> Rates:
    """Rows of many versions of a schema, interleaved entry by entry, beside rows of one."""
    many, size = _reading(count)
    one, _ = _reading(1)
    return Rates(f"AVRO flat, {count} versions; theirs: 1", size, *_beside(many, one, MAX_TYPED_ROWS))


def _reading(count: int) -> tuple[Callable[[], None], int]:
    """What reads rows of this many versions, each of which has one field more than all have."""
    topic = TopicName.parse("versions")
    schemas = [_version(number) for number in range(count)]
    of = {number: Schema(SchemaType.AVRO, json.dumps(each).encode()) for number, each in enumerate(schemas)}
    rnd = random.Random(1)
    entries = []
    rows_of_entry = 10
    numbers = cycle(range(count))
    parsed = [fastavro.parse_schema(each) for each in schemas]
    size = 0
    for first in range(0, MAX_TYPED_ROWS, rows_of_entry):
        number = next(numbers)
        own = {f"own{number}": f"text {first}"}
        values = [avro_payload(parsed[number], flat_row(rnd, i) | own) for i in range(rows_of_entry)]
        size += sum(map(len, values))
        entries.append(_entry(first, number, values))
    (messages,) = decode_entries(
        [RangeEntries(topic, [Entries.of(entries)])],
        max_rows=MAX_TYPED_ROWS,
        max_bytes=1 << 30,
        leave_out_corrupt=False,
    )
    reader = ReaderSchema(of[count - 1], {topic: (count - 1, of[count - 1])})
    typed = TypedValueReader(lambda _, asked: {each: of[each] for each in asked}, topic, reader, reader.type)
    return lambda: _read_all(typed, messages), size // MAX_TYPED_ROWS


def _read_all(typed: TypedValueReader, messages: DecodedMessages) -> None:
    for values in typed.read(messages):
        assert values.is_bad is None


def _version(number: int) -> dict[str, Any]:
    own = {"name": f"own{number}", "type": ["null", "string"], "default": None}
    return {**FLAT, "fields": [*FLAT["fields"], own]}


def _entry(number: int, version: int, values: list[bytes]) -> Entry:
    heads = [pb.SingleMessageMetadata(payload_size=len(each)).SerializeToString() for each in values]
    payload = b"".join(
        len(head).to_bytes(4, "big") + head + each for head, each in zip(heads, values, strict=True)
    )
    metadata = pb.MessageMetadata(
        producer_name=b"p",
        sequence_id=number,
        publish_time=0,
        schema_version=version.to_bytes(8, "big"),
        num_messages_in_batch=len(values),
        uncompressed_size=len(payload),
    )
    return Entry(1, number, metadata, payload, None)
