"""A kind of schema for tests of what stands above all kinds: fields separated by commas, all of them int64.

A schema's data are the names of its fields, such as ``a,b``; a value has their numbers, such as ``1,2``.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.client.reading import typed_values
from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.interfaces import DecodedValues
from pulsar_spark.values.value_bounds import ANY_WORK, ValueCost, ValueWork


def csv(names: str, kind: SchemaType = SchemaType.AVRO) -> Schema:
    """A schema of these fields."""
    return Schema(kind, names.encode())


def column_type(schema: Schema) -> pa.DataType:
    """A struct; a field whose name begins with ``?`` has no type."""
    names = _names(schema)
    if any(name.startswith("?") for name in names):
        raise UnsupportedError("a field has no type")
    return pa.struct([(name, pa.int64()) for name in names])


class CsvDecoder:
    """Counts its calls and rows.

    Attributes:
        calls: rows of each call, of all decoders together.
    """

    calls: ClassVar[list[int]] = []
    cost = ValueCost()

    def __init__(self, writer: Schema, reader: Schema, target: pa.DataType) -> None:
        if writer.type != reader.type:
            raise SchemaError(f"values of {writer.type.name} are not read as {reader.type.name}")
        known = {each.name for each in column_type(reader)}
        wrong = [each.name for each in target if each.name not in known or each.type != pa.int64()]
        if wrong:
            raise SchemaError(f"the target's {wrong[0]} is no field")
        self.type = target
        self._writer = _names(writer)
        self._has_key = writer.type is SchemaType.KEY_VALUE

    @property
    def plan(self) -> int:
        return id(self)

    def decode(
        self, values: pa.BinaryArray, keys: pa.BinaryArray, work: ValueWork = ANY_WORK
    ) -> DecodedValues:
        self.calls.append(len(values))
        payloads = [
            value if value is None or work.take(row, value.count(b",")) else None
            for row, value in enumerate(values.to_pylist())
        ]
        rows = [
            None if value is None and key is None else self._row(value, key)
            for value, key in zip(payloads, keys.to_pylist(), strict=True)
        ]
        is_bad = np.array([isinstance(row, str) for row in rows])
        column = pa.array([None if isinstance(row, str) else row for row in rows], self.type)
        return DecodedValues(column, is_bad if is_bad.any() else None)

    def explain(self, value: bytes | None, key: bytes | None) -> str:
        row = self._row(value, key)
        assert isinstance(row, str)
        return row

    def _row(self, value: bytes | None, key: bytes | None) -> dict[str, int] | str:
        parts = [] if value is None else value.decode().split(",")
        if self._has_key:
            parts.insert(0, "" if key is None else key.decode())
        for name, part in zip(self._writer, parts, strict=False):
            if not part.isdigit():
                return f"field {name} is {part}"
        if len(parts) > len(self._writer):
            return "bytes are left over"
        return {name: int(part) for name, part in zip(self._writer, parts, strict=False)}


def new_values(newer: Schema, older: Schema) -> Iterator[str]:
    """There are none but in new fields."""
    yield from ()


def check_columns(schema: Schema) -> None:
    """All have one."""


_FORMATS = SimpleNamespace(
    column_type=column_type, check_columns=check_columns, decoder=CsvDecoder, new_values=new_values
)


def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be the only kind of schemas: the body of a fixture."""
    CsvDecoder.calls.clear()
    monkeypatch.setattr(typed_values, "formats", _FORMATS)
    monkeypatch.setattr(typed_values, "_DECODERS", typed_values._Decoders(1 << 20))


def _names(schema: Schema) -> list[str]:
    return schema.data.decode().split(",")
