"""PROTOBUF_NATIVE: payloads are messages of a type that the schema describes; columns are ``struct``.

The types equal those of Spark's ``from_protobuf`` with ``upcast.unsigned.ints``, which users know:

    ========================================  ==================================================
    int32, sint32, sfixed32; uint32, fixed32  int32; int64, which holds all values
    int64, sint64, sfixed64; uint64, fixed64  int64; decimal(20, 0), which holds all values
    float, double, bool, string, bytes        float32, float64, bool, string, binary
    enum                                      string: the value's name
    message; Timestamp, Duration              struct; timestamp, duration
    message without fields; within itself     bool, true; string, its JSON: see ``readers``
    repeated; map                             list; map, with the last value of a repeated key
    ========================================  ==================================================

An absent field is null, or has the default that a proto2 schema gives it. A field without presence (most
fields of proto3) is also null if it is zero or empty, because absent and zero are the same on the wire.
Wrappers and Any become structs, as other messages.

Payloads are read by the reader's descriptors, as always in protobuf: fields that the reader does not define
are left out, and fields that the writer lacks are absent. A field may change only to a compatible type,
see ``plan``. A payload is bad if it is not protobuf, lacks a required field, or has text that is not UTF-8 or
a time that a column cannot hold.

Protobuf's runtime never gets a topic's descriptors, because anyone may have written them. It gets generated
descriptors of the requested fields, in a pool that is freed with the decoder.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import offsets_of
from pulsar_spark.arrow.join import bytes_field, join, to_mask
from pulsar_spark.errors import SchemaError
from pulsar_spark.schema import Schema
from pulsar_spark.unparsable import UNPARSABLE
from pulsar_spark.values.interfaces import DecodedValues, ValueDecoder
from pulsar_spark.values.protobuf.costs import (
    MESSAGE_WORK,
    PAID_WORK,
    CountedFields,
    counted_fields,
    counted_json,
    growth,
    max_messages,
    row_cost,
    take_items,
)
from pulsar_spark.values.protobuf.definition import WAY_OUT, parse
from pulsar_spark.values.protobuf.plan import ProtobufPlan, check_fields
from pulsar_spark.values.protobuf.readers import ReadColumn, StructReader
from pulsar_spark.values.value_bounds import (
    ANY_WORK,
    ValueCost,
    ValueRoom,
    ValueWork,
    largest_unchecked,
    rows_to_check,
)

_MAX_JOINED = 4096  # maximum average bytes of payloads that are parsed in one call


def column_type(schema: Schema) -> pa.DataType:
    """Returns the type of a column; raises as ``formats.column_type``."""
    return ProtobufPlan(parse(schema), skips=True).root(None).type


def check_columns(schema: Schema) -> None:
    """Raises UnsupportedError for a field that has no column, which :func:`column_type` leaves out."""
    ProtobufPlan(parse(schema)).root(None)


def decoder(writer: Schema, reader: Schema, target: pa.DataType) -> ValueDecoder:
    """Returns the decoder, which parses by the reader's descriptors; see ``formats.decoder``."""
    definition, written = parse(reader), parse(writer)
    if written.root != definition.root:
        raise SchemaError(
            f"values of message {written.root} cannot be read as {definition.root}", advice=WAY_OUT
        )
    plan = ProtobufPlan(definition)
    root = plan.root(target)
    check_fields(written, definition, target)
    json = counted_json(plan.json, plan.json_messages.values(), plan.file)
    fields = counted_fields(root, plan.file.message_type[0], plan.file, json)
    cost = ValueCost(row_cost(root, plan.file.message_type[0]), growth(fields))
    return _ProtobufDecoder(root, plan.parser(), fields, cost, largest_unchecked(cost.growth))


@dataclass(frozen=True, slots=True)
class _ProtobufDecoder:
    root: StructReader
    parser: Any  # message class that parses several payloads at once, as items of its repeated field f1
    counted: CountedFields
    cost: ValueCost
    unchecked: int | None  # payloads up to this many bytes cannot use too much memory; None: no payload can

    @property
    def type(self) -> pa.DataType:
        return self.root.type

    @property
    def plan(self) -> Hashable:
        return id(self)

    def decode(
        self, values: pa.BinaryArray, keys: pa.BinaryArray, work: ValueWork = ANY_WORK
    ) -> DecodedValues:
        is_valid = to_mask(values.is_valid())
        has = is_valid.copy()
        too_large = self._too_large(values, work)
        if too_large:
            has[too_large] = False
            values = values.filter(pa.array(has))
        present = values.drop_null() if values.null_count else values
        messages, is_parsed = self._parsed(present)
        is_good = has.copy()
        is_good[has] = is_parsed
        found = self.root.read(messages)
        if found.is_bad is not None:
            is_good[is_good] = ~found.is_bad
            found = ReadColumn(found.column.filter(pa.array(~found.is_bad)))
        if is_good.all():
            return DecodedValues(found.column)
        is_bad = is_valid & ~is_good
        return DecodedValues(found.spread(is_good).column, is_bad if is_bad.any() else None)

    def explain(self, value: bytes | None, key: bytes | None) -> str:
        room = ValueRoom(len(value or b""))
        take_items(room, value or b"", self.counted)
        if room.left < 0:
            return room.why
        messages, _ = self._parsed(pa.array([value], pa.binary()))
        if not messages:
            return f"{len(value or b'')} bytes are not a protobuf message"
        return self.root.read(messages).why.removeprefix(".")

    def _too_large(self, values: pa.BinaryArray, work: ValueWork) -> list[int]:
        """Returns the indexes of payloads that would use too much memory or time, without parsing them."""
        rows = rows_to_check(values, self.unchecked)
        if work.is_limited:
            most = MESSAGE_WORK * max_messages(values, self.counted)
            rows = np.union1d(rows, np.flatnonzero(most > PAID_WORK * np.diff(offsets_of(values))))
        found = []
        # Each distinct payload is counted once, because very many messages may have the same payload.
        counted: dict[bytes, tuple[float, bool]] = {}
        for row in rows.tolist():
            payload = values[row].as_py()
            units, is_large = counted.get(payload) or self._count(payload, work.left(row), counted)
            if not work.take(row, units) or is_large:
                found.append(row)
        return found

    def _count(
        self, payload: bytes, left: float, counted: dict[bytes, tuple[float, bool]]
    ) -> tuple[float, bool]:
        """Returns the units of work of a payload, and whether its columns are too large."""
        paid = PAID_WORK * len(payload)
        room = ValueRoom(len(payload), left + paid)
        take_items(room, payload, self.counted)
        result = left - room.work, room.left < 0
        if room.work >= 0:  # otherwise the count is incomplete, because no work was left
            counted[payload] = result
        return result

    def _parsed(self, values: pa.BinaryArray) -> tuple[list[Any], npt.NDArray[np.bool_]]:
        """Parses payloads; returns the messages, and flags of the payloads that are messages."""
        if values.nbytes <= _MAX_JOINED * len(values):
            joined = bytes(join(bytes_field(b"\x0a", values), len(values)).buffer)
            try:
                return list(self.parser.FromString(joined).f1), np.ones(len(values), np.bool_)
            except UNPARSABLE:
                pass  # some payloads are bad, so all are parsed one by one below
        row, messages, is_parsed = type(self.parser().f1.add()), [], []
        for value in values:
            try:
                messages.append(row.FromString(value.as_py()))
            except UNPARSABLE:
                is_parsed.append(False)
            else:
                is_parsed.append(True)
        return messages, np.array(is_parsed, np.bool_)
