"""Schemas that are as large as any may be: load() takes 3 s of CPU, and a worker 300 MB, at most.

Each is of one kind of part, as many of them as there may be, or more: then it must be refused. It is loaded,
and values of up to 1 MB are decoded by it, and by it as a newer version of itself.
"""

from __future__ import annotations

import base64
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from integration.hostile.costs import CostlyError, peak, reset_peak
from pulsar_spark.client import ReaderSchema
from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.spark.rows.schema import RowColumns
from pulsar_spark.values import formats

_LOAD_SECONDS = 3.0
_WORK_SECONDS = 20.0  # for all values
_MEMORY = 300 << 20  # bytes
_TEXT: Final = (4 << 20) - 1_000  # bytes of a definition
_VALUE: Final = 1_000_000  # bytes
_TYPES: Final = 9_900  # a few fewer than there may be
_MARKS: Final = 240_000


def run(seed: int, count: int) -> Iterator[int]:
    """Try so many of ``CASES``, or all; gives how many there were.

    Raises:
        CostlyError: one cost too much.
    """
    names = random.Random(seed).sample(list(CASES), min(count, len(CASES)))
    for number, name in enumerate(names, 1):
        one_schema(name)
        yield number


def one_schema(name: str) -> None:
    """Try one of ``CASES``, as AVRO and as JSON if it is of Avro; raises CostlyError."""
    made = CASES[name]()
    if isinstance(made, Schema):
        _try(name, made)
        return
    for kind in (SchemaType.AVRO, SchemaType.JSON):
        _try(f"{name} ({kind.name})", Schema(kind, made.encode()))


def _try(what: str, schema: Schema) -> None:
    before = reset_peak()
    try:
        began = time.process_time()
        columns = _load(schema)
        _check(f"load() of {what}", time.process_time() - began, _LOAD_SECONDS, peak() - before)
        began = time.process_time()
        _work(schema, columns)
        _check(f"a worker with {what}", time.process_time() - began, _WORK_SECONDS, peak() - before)
    except (SchemaError, UnsupportedError):
        _check(f"refusing {what}", time.process_time() - began, _LOAD_SECONDS, peak() - before)


def _load(schema: Schema) -> RowColumns:
    """What load() does with a schema."""
    reader = ReaderSchema(schema)
    reader.check_columns()
    columns = RowColumns((), reader.type, is_flat=True)
    reader.check(reader.type)
    columns.schema.json()
    return columns


def _work(schema: Schema, columns: RowColumns) -> None:
    """What a task does: values that are good, broken and large, also of a version that is newer."""
    target = columns.target
    assert target is not None
    newer = Schema(schema.type, schema.data + b" ", schema.properties)
    many = ",".join(f'"f{number}":1' for number in range(_VALUE // 14))
    values = [b"", bytes(20_000), b"{}", b'{"f0":{"f0":1}}', bytes(_VALUE), os.urandom(_VALUE)]
    values += [f"{{{many}}}".encode(), b'{"f0":[' + b"{}," * (_VALUE // 3) + b"{}]}"]
    for writer in (schema, newer):
        decoder = formats.decoder(writer, schema, target)
        for value in values:
            column = pa.array([value], pa.binary())
            found = decoder.decode(column, pa.nulls(1, pa.binary()))
            if found.is_bad is not None:
                decoder.explain(value, None)
    list(formats.new_values(newer, schema))


def _check(what: str, seconds: float, most: float, memory: int) -> None:
    if seconds > most or memory > _MEMORY:
        raise CostlyError(f"{what}: {seconds:.1f} s of CPU and {memory >> 20} MiB")


# ---- definitions; each maker of one gives as many parts as are of interest


def _record(fields: str, name: str = "R", more: str = "") -> str:
    return f'{{"type":"record","name":"{name}","fields":[{fields}]{more}}}'


def _field(number: int, kind: str, more: str = "") -> str:
    return f'{{"name":"f{number}","type":{kind}{more}}}'


def _fields(kind: Callable[[int], str], count: int) -> str:
    return _record(",".join(_field(number, kind(number)) for number in range(count)))


def _union(branch: Callable[[int], str], count: int) -> str:
    return _record(_field(0, "[" + ",".join(map(branch, range(count))) + "]"))


def _many(part: Callable[[int], str], count: int) -> str:
    """Parts with commas between them, as many as there is room for."""
    parts, size = [], 0
    for number in range(count):
        parts.append(part(number))
        size += len(parts[-1]) + 1
        if size > _TEXT:
            return ",".join(parts[:-1])
    return ",".join(parts)


def _more(name: str, value: str) -> str:
    """A record of one field with something beside its type."""
    return _record(_field(0, '"int"', f',"{name}":{value}'))


def _enum(number: int, symbols: str) -> str:
    return f'{{"type":"enum","name":"E{number}","symbols":[{symbols}]}}'


def _nested(kind: Callable[[str, int], str], depth: int = 44) -> str:
    tree = '"int"'
    for level in range(depth):
        tree = kind(tree, level)
    return _record(_field(0, tree))


def _doubled(levels: int) -> str:
    """A record of two of a record of two of a record, and so on."""
    tree = _record(_field(0, '"int"'), "D0")
    for level in range(levels):
        tree = _record(f'{_field(0, tree)},{_field(1, f""" "D{level}" """)}', f"D{level + 1}")
    return tree


def _defaults(kind: str, default: str, count: int) -> str:
    return _record(",".join(_field(number, kind, f',"default":{default}') for number in range(count)))


def _protobuf(change: Callable[[FileDescriptorProto], None]) -> Schema:
    file = FileDescriptorProto(name="f.proto", package="p", syntax="proto3")
    file.message_type.add(name="M")
    change(file)
    data = base64.b64encode(FileDescriptorSet(file=[file]).SerializeToString())[: 4 << 20]
    told = {
        "fileDescriptorSet": data.decode(),
        "rootMessageTypeName": "p.M",
        "rootFileDescriptorName": "f.proto",
    }
    return Schema(SchemaType.PROTOBUF_NATIVE, json.dumps(told).encode())


def _protobuf_fields(count: int) -> Schema:
    def change(file: FileDescriptorProto) -> None:
        for number in range(1, count + 1):
            kind = FieldDescriptorProto.TYPE_STRING
            file.message_type[0].field.add(name=f"f{number}", number=number + 20_000, type=kind, label=3)

    return _protobuf(change)


def _protobuf_messages(count: int) -> Schema:
    def change(file: FileDescriptorProto) -> None:
        for number in range(1, count + 1):
            kind = FieldDescriptorProto.TYPE_MESSAGE
            file.message_type.add(name=f"M{number}")
            file.message_type[0].field.add(
                name=f"f{number}", number=number + 20_000, type=kind, type_name=f".p.M{number}", label=1
            )

    return _protobuf(change)


def _protobuf_enum(count: int) -> Schema:
    def change(file: FileDescriptorProto) -> None:
        enum = file.enum_type.add(name="E")
        for number in range(count):
            enum.value.add(name=f"E{number}", number=number)
        kind = FieldDescriptorProto.TYPE_ENUM
        file.message_type[0].field.add(name="f0", number=1, type=kind, type_name=".p.E", label=1)

    return _protobuf(change)


_EMPTY: Final = '{"type":"record","name":"B%d","fields":[]}'
CASES: Final[dict[str, Callable[[], str | Schema]]] = {
    "fields": lambda: _fields(lambda _: '"int"', _TYPES),
    "more fields": lambda: _fields(lambda _: '"int"', 12 * _TYPES),
    "nullable fields": lambda: _fields(lambda _: '["null","string"]', _TYPES // 3),
    "fields with long names": lambda: _record(
        _many(lambda number: f'{{"name":"{"n" * 980}{number}","type":"int"}}', _TYPES)
    ),
    "maps": lambda: _fields(
        lambda _: '{"type":"map","values":{"type":"array","items":"string"}}', _TYPES // 3
    ),
    "records without fields": lambda: _fields(lambda number: _EMPTY % number, _TYPES),
    "Java's maps": lambda: _fields(
        lambda number: (
            '{"type":"array","items":'
            + _record(
                '{"name":"key","type":"int"},{"name":"value","type":"int"}',
                f"org.apache.avro.reflect.Pair{number}",
            )
            + "}"
        ),
        _TYPES // 4,
    ),
    "symbols": lambda: _record(_field(0, _enum(0, _many(lambda number: f'"{number:x}"', _MARKS)))),
    "long symbols": lambda: _record(_field(0, _enum(0, _many(lambda number: f'"{number:0990x}"', _MARKS)))),
    "enums": lambda: _fields(
        lambda number: _enum(number, ",".join(f'"s{each}"' for each in range(20))), _TYPES
    ),
    "aliases of a record": lambda: _record(
        _field(0, '"int"'), more=f',"aliases":[{_many(lambda number: f""" "{number:x}" """, _MARKS)}]'
    ),
    "the same aliases": lambda: _record(
        ",".join(
            _field(number, '"int"', ',"aliases":[' + ",".join(f'"z{each}"' for each in range(20)) + "]")
            for number in range(_MARKS // 25)
        )
    ),
    "a long text": lambda: _more("doc", '"' + "d" * _TEXT + '"'),
    "a text beyond ASCII": lambda: _more("doc", '"' + "\\ud83d\\ude00" * (_TEXT // 12) + '"'),
    "objects": lambda: _more("doc", f"[{_many(lambda _: '{}', _MARKS // 2)}]"),
    "names": lambda: _more("doc", "{" + _many(lambda number: f'"{number:x}":0', _MARKS // 2) + "}"),
    "a deep text": lambda: _more("doc", "[" * 100_000 + "]" * 100_000),
    "a deep type": lambda: '{"type":' * 100_000 + '"int"' + "}" * 100_000,
    "a long number": lambda: _more("doc", "1" * _TEXT),
    "long numbers": lambda: _more("doc", f"[{_many(lambda _: '9' * 4_000, _MARKS)}]"),
    "a wide decimal": lambda: _record(
        _field(0, f'{{"type":"bytes","logicalType":"decimal","precision":{"9" * 4_000},"scale":2}}')
    ),
    "a default of many items": lambda: _defaults(
        '{"type":"array","items":"int"}', f"[{_many(lambda _: '1', 90_000)}]", 1
    ),
    "defaults": lambda: _defaults('"int"', "1", _TYPES),
    "long defaults": lambda: _defaults('"string"', f'"{"x" * 60}"', 1_000),
    "a default that is too long": lambda: _defaults('"string"', f'"{"x" * _TEXT}"', 1),
    "a default of another type": lambda: _defaults('"int"', f"[{_many(lambda _: '{}', _MARKS // 2)}]", 1),
    "a record that is used often": lambda: _record(
        ",".join(
            [
                _field(0, _record(",".join(_field(number, '"int"') for number in range(97)), "I")),
                *(_field(number, '"I"') for number in range(1, 99)),
            ]
        )
    ),
    "doubled records": lambda: _doubled(11),
    "records doubled too often": lambda: _doubled(40),
    "records in each other": lambda: _nested(lambda tree, level: _record(_field(0, tree), f"N{level}")),
    "arrays in each other": lambda: _nested(lambda tree, _: f'{{"type":"array","items":{tree}}}'),
    "maps in each other": lambda: _nested(lambda tree, _: f'{{"type":"map","values":{tree}}}'),
    "recursive fields": lambda: _fields(lambda _: '["null","R"]', _TYPES // 3),
    "a union of records": lambda: _union(lambda number: _EMPTY % number, _TYPES),
    "a union of records with a field": lambda: _union(
        lambda number: _record(_field(0, '"int"'), f"B{number}"), _TYPES // 2
    ),
    "a union of enums": lambda: _union(lambda number: _enum(number, '"a","b"'), _TYPES),
    "a union of fixed types": lambda: _union(
        lambda number: f'{{"type":"fixed","name":"F{number}","size":{number % 7}}}', _TYPES
    ),
    "a union of records of the same aliases": lambda: _union(
        lambda number: (
            f'{{"type":"record","name":"B{number}","fields":[],"aliases":['
            + ",".join(f'"A{each}"' for each in range(90))
            + "]}"
        ),
        _MARKS // 100,
    ),
    "unions": lambda: _fields(lambda _: '["null","int","string","boolean"]', _TYPES // 5),
    "unions in each other": lambda: _nested(
        lambda tree, level: f'["null","boolean",{_record(_field(0, tree), f"N{level}")}]', 22
    ),
    "fields of Protobuf": lambda: _protobuf_fields(9_900),
    "more fields of Protobuf": lambda: _protobuf_fields(150_000),
    "messages of Protobuf": lambda: _protobuf_messages(9_900),
    "symbols of Protobuf": lambda: _protobuf_enum(200_000),
}
