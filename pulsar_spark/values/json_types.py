"""Types of the values in JSON payloads, which may differ from the Avro types of the topic's schema.

Java's client derives the schema of a class by Avro's reflection, but writes JSON by Jackson:

    ==========================  ==================  ====================  ===============================
    field of a class            its schema          its JSON              type here
    ==========================  ==================  ====================  ===============================
    Date, Timestamp and others  a record without    milliseconds, or      long, timestamp-millis
                                fields              seconds with a point
    Duration, Object and all    a record without    anything              string, json: the JSON itself
    others without fields       fields
    a recursive class           its name            an object             string, json
    char, char[]                int, array of it    text                  string, char or chars
    a decimal of more than 38   bytes, decimal      a number              string, number
    digits
    LocalTime                   int, time-millis    ``[h, min, s, ns]``   int, time-millis
    Map with other keys than    an array of Pair    an object             the array: see ``is_pairs``
    strings                     records
    ==========================  ==================  ====================  ===============================

So JSON has more logical types than Avro's: json, char, chars, number, time-millis, time-micros.

If Java's client made the schema, times are written as text, because Jackson reads numbers as seconds for most
time classes. Otherwise times are written as numbers, because Jackson does not read text as a long.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow as pa

from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.avro import avro_types
from pulsar_spark.values.avro.avro_types import (
    AvroArray,
    AvroEnum,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroRecursive,
    AvroType,
    AvroUnion,
)
from pulsar_spark.values.time_units import time_kind

# Time classes whose schemas are records without fields.
_MOMENTS: Final = frozenset(
    (
        "java.util.Date",
        "java.util.Calendar",
        "java.util.GregorianCalendar",
        "java.sql.Date",
        "java.sql.Timestamp",
        "java.time.OffsetDateTime",
        "java.time.ZonedDateTime",
    )
)
_MOMENT: Final = AvroPrimitive("long", "timestamp-millis")
_JSON: Final = AvroPrimitive("string", "json")
# Java's client writes these properties into each schema that it makes.
_JAVA_PROPERTIES: Final = ("__alwaysAllowNull", "__jsr310ConversionEnabled")
_PAIR: Final = "org.apache.avro.reflect.Pair"


def parse(schema: Schema) -> AvroType:
    """Parses a schema of kind AVRO or JSON; for JSON, returns the types that values have in payloads.

    Raises the errors of ``avro_types.parse``.
    """
    avro = avro_types.parse(schema)
    return _Forms(has_classes=is_of_java(schema)).of(avro) if schema.type is SchemaType.JSON else avro


def column_type(schema: Schema) -> pa.DataType:
    """Returns the Arrow type of a column of kind AVRO or JSON; raises as ``formats.column_type``."""
    return avro_types.arrow_type(parse(schema))


def is_of_java(schema: Schema) -> bool:
    """Whether Java's client made the schema from a class."""
    return any(name in schema.properties for name in _JAVA_PROPERTIES)


def is_pairs(avro: AvroArray, *, is_connect: bool = False) -> bool:
    """Whether an array of key-value records is a map of Java or Kafka Connect whose keys are not strings."""
    item = avro.items
    return (
        isinstance(item, AvroRecord)
        and (is_connect or item.name.startswith(_PAIR))
        and [field.name for field in item.fields] == ["key", "value"]
    )


class _Forms:
    """Converts Avro types to the types that values have in JSON; converts each type only once."""

    def __init__(self, *, has_classes: bool) -> None:
        self._has_classes = has_classes
        self._known: dict[int, AvroType] = {}  # converted types, by id() of the original type

    def of(self, avro: AvroType) -> AvroType:
        if id(avro) not in self._known:
            self._known[id(avro)] = self._new(avro)
        return self._known[id(avro)]

    def _new(self, avro: AvroType) -> AvroType:
        if isinstance(avro, AvroRecursive):
            return _JSON
        if isinstance(avro, AvroRecord):
            if not avro.fields:
                return _MOMENT if avro.name in _MOMENTS else _JSON
            return replace(
                avro, fields=tuple(replace(field, type=self.of(field.type)) for field in avro.fields)
            )
        if isinstance(avro, AvroUnion):
            return AvroUnion(tuple(map(self.of, avro.branches)))
        if isinstance(avro, AvroArray):
            return AvroPrimitive("string", "chars") if avro.is_chars else AvroArray(self.of(avro.items))
        if isinstance(avro, AvroMap):
            return AvroMap(self.of(avro.values))
        if isinstance(avro, AvroEnum):
            return avro
        if avro.form == "decimal":
            return AvroPrimitive("string", "number", avro.precision, avro.scale)
        if isinstance(avro, AvroPrimitive) and avro.form:
            avro = AvroPrimitive("string" if avro.form == "char" else avro.kind, avro.form)
        if isinstance(avro, AvroPrimitive) and time_kind(avro) and not self._has_classes:
            return replace(avro, form="number")
        return avro
