"""Counts the memory and the work of items of repeated fields and maps, without parsing the payload.

Items use memory twice: in Protobuf's runtime, which parses a whole payload at once, and then as columns. The
runtime doubles the capacity of a growing array and keeps the old memory, so it may use three times the memory
of the items. Texts and bytes are also copied on their way to columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from pulsar_spark.arrow.arrays import Ints, count_bytes
from pulsar_spark.values.protobuf.readers import (
    EnumReader,
    JsonReader,
    MapReader,
    SingularReader,
    StructReader,
    TypeReader,
)
from pulsar_spark.values.value_bounds import ValueRoom, item_width, max_growth

_VARINT, _FIXED64, _BYTES, _START, _END, _FIXED32 = range(6)
_F = FieldDescriptorProto
_EIGHT = (_F.TYPE_DOUBLE, _F.TYPE_FIXED64, _F.TYPE_SFIXED64)
_FOUR = (_F.TYPE_FLOAT, _F.TYPE_FIXED32, _F.TYPE_SFIXED32)
# Bytes of a packed item on the wire; items of other types are varints.
_PACKED_SIZES = dict.fromkeys(_EIGHT, 8) | dict.fromkeys(_FOUR, 4)
# Bytes of an item in the runtime; items of other types have 8.
_ELEMENT_SIZES = {_F.TYPE_BOOL: 1, _F.TYPE_STRING: 16, _F.TYPE_BYTES: 16} | dict.fromkeys(
    (*_FOUR, _F.TYPE_INT32, _F.TYPE_UINT32, _F.TYPE_SINT32, _F.TYPE_ENUM), 4
)
_HEADER = 40  # bytes of a message or of an array, without its fields or items
_JSON_ITEM = 300  # bytes of an item while its JSON is written, without its name
_NOT_PACKED = (_F.TYPE_BYTES, _F.TYPE_MESSAGE, _F.TYPE_GROUP)
COPIES = 3  # copies of a payload: Python's bytes, and texts in the runtime and on their way to columns
MESSAGE_WORK = 1.6  # units of work of a message in a repeated field, or of a packed item that becomes JSON
_FIELD_WORK = 0.45  # units of work of any field on the wire
_PACKED_WORK = 0.125  # units of work of a packed item
PAID_WORK = 0.2  # units of work allowed for each byte: enough for ordinary messages of ten or more bytes
_MAX_DEPTH = 100  # maximum depth of messages in the runtime
_NOT_LAST = bytes(range(128, 256))  # the bytes that may precede a varint's last byte


@dataclass(frozen=True, slots=True)
class CountedField:
    """A field that ``take_items`` counts: repeated, a map, a message with such fields, or read as JSON.

    Attributes:
        width: bytes of memory of an item; 0: the field is a single message.
        packed: payload bytes of an item in a packed field; 0: items are varints; None: never packed.
        has_messages: True if an item is a message or becomes JSON, which takes ``MESSAGE_WORK``.
    """

    width: int
    fields: CountedFields
    packed: int | None
    has_messages: bool = False


CountedFields: TypeAlias = "Mapping[int, CountedField]"  # by field number


def counted_fields(
    struct: StructReader,
    own: DescriptorProto,
    file: FileDescriptorProto,
    json: dict[str, dict[int, CountedField]],
) -> CountedFields:
    """Returns the fields of a message that ``take_items`` counts, by field number.

    Args:
        own: descriptor of the message.
        file: file with the descriptors of all message types, which are named ``.M0``, ``.M1`` and so on.
        json: type name -> counted fields, for message types that are read as JSON, also recursive types.
    """
    defined = {field.number: field for field in own.field}
    found = {}
    for field in struct.fields:
        number = int(field.attribute.removeprefix("f"))
        reader = field.entry if isinstance(field, MapReader) else field.reader
        fields: CountedFields = {}
        if isinstance(reader, StructReader):
            inner = _message_named(defined[number].type_name, file)
            fields = counted_fields(reader, inner, file, json)
        elif isinstance(reader, JsonReader):
            fields = json[defined[number].type_name]
        if isinstance(field, SingularReader):
            if fields:
                found[number] = CountedField(0, fields, None)
            continue
        kind = defined[number].type
        packed = None if kind in _NOT_PACKED else _PACKED_SIZES.get(kind, 0)
        width = item_width(field.type) + _added_text(reader) + 3 * _ELEMENT_SIZES.get(kind, 8)
        if kind == _F.TYPE_MESSAGE:
            width += _message_size(_message_named(defined[number].type_name, file))
        found[number] = CountedField(width, fields, packed, kind == _F.TYPE_MESSAGE)
    return found


def counted_json(
    reader: JsonReader, messages: Iterable[DescriptorProto], file: FileDescriptorProto
) -> dict[str, dict[int, CountedField]]:
    """Returns type name -> number -> field, for all fields of the messages that are read as JSON."""
    found: dict[str, dict[int, CountedField]] = {f".{message.name}": {} for message in messages}
    for name, fields in found.items():
        for defined in _message_named(name, file).field:
            own = reader.fields[f"{name[1:]}.{defined.name}"]
            text = _added_text(own.entry if isinstance(own, MapReader) else own.reader)
            width = _JSON_ITEM + len(own.name.encode()) + text
            packed = None if defined.type in _NOT_PACKED else _PACKED_SIZES.get(defined.type, 0)
            inner: CountedFields = {}
            if defined.type_name in found:
                inner = found[defined.type_name]
                width += _message_size(_message_named(defined.type_name, file))
            fields[defined.number] = CountedField(width, inner, packed, has_messages=True)
    return found


def _message_named(type_name: str, file: FileDescriptorProto) -> DescriptorProto:
    return file.message_type[int(type_name.removeprefix(".M"))]


def _message_size(message: DescriptorProto) -> int:
    """Returns the approximate bytes of a message in the runtime; absent fields use memory, too."""
    return _HEADER + sum(
        8 if field.label == _F.LABEL_REPEATED else _ELEMENT_SIZES.get(field.type, 8)
        for field in message.field
    )


def _added_text(reader: TypeReader) -> int:
    """Returns the maximum bytes that the schema adds to a value: names of enums, and defaults."""
    if isinstance(reader, EnumReader):
        unknown = len(reader.unknown.encode()) + 12  # "_" and a number of up to 11 characters
        return max([unknown, *(len(name.encode()) for name in reader.names.values())])
    total = 0
    if isinstance(reader, StructReader):
        for field in reader.fields:
            if isinstance(field, SingularReader):
                total += _added_text(field.reader)
                if field.default is not None and field.default.type in (pa.string(), pa.binary()):
                    total += field.default.as_buffer().size if field.default.is_valid else 0
    return total


def row_cost(root: StructReader, message: DescriptorProto) -> int:
    """Returns the maximum bytes of memory of an empty payload: its message, enum names and defaults."""
    return _message_size(message) + _added_text(root)


def growth(fields: CountedFields) -> float:
    """Returns the maximum bytes, in columns and in protobuf's runtime together, for each payload byte."""
    return COPIES + max_growth(_lists(fields))


def _lists(fields: CountedFields) -> Iterator[tuple[int, int]]:
    for _, field in _all_fields(fields):
        if field.packed is None:
            yield field.width, 2  # an item has at least two bytes: a tag, and a length or value
        else:
            size = field.packed or 1
            yield field.width, size
            yield field.width + _HEADER, 2 + size


def _all_fields(fields: CountedFields) -> Iterator[tuple[int, CountedField]]:
    """Yields each field once, at any depth, because messages may contain themselves."""
    left, known = [fields], {id(fields)}
    while left:
        for number, field in left.pop().items():
            yield number, field
            if id(field.fields) not in known:
                known.add(id(field.fields))
                left.append(field.fields)


def take_items(room: ValueRoom, payload: bytes, fields: CountedFields) -> None:
    """Subtracts the memory and the work of a payload and all its items from ``room``.

    Stops if no memory or no work is left, or if the payload is malformed.
    """
    left, work = room.left - COPIES * len(payload), room.work
    at, end = 0, len(payload)
    above: list[tuple[CountedFields, int]] = []  # (fields, end) of the messages around the current message
    try:
        # This loop looks up few attributes, because a payload may have millions of fields of two bytes.
        while left >= 0 and work >= 0:
            while at >= end:
                if not above:
                    return
                fields, end = above.pop()
            tag = payload[at]  # most tags have one byte
            at += 1
            if tag >= 0x80:
                tag, at = _varint(payload, at - 1)
            work -= _FIELD_WORK
            kind = tag & 7
            field = fields.get(tag >> 3)
            if kind == _BYTES:
                size = payload[at]
                at += 1
                if size >= 0x80:
                    size, at = _varint(payload, at - 1)
                if size > end - at:
                    return
                if field is None:
                    at += size
                elif field.packed is not None:
                    if size:
                        items = payload[at : at + size]
                        packed = (
                            size // field.packed if field.packed else len(items.translate(None, _NOT_LAST))
                        )
                        left -= field.width * packed + _HEADER
                        work -= packed * (MESSAGE_WORK if field.has_messages else _PACKED_WORK)
                        at += size
                else:
                    left -= field.width
                    work -= MESSAGE_WORK * field.has_messages
                    if not field.fields:
                        at += size
                    elif size:  # an empty message has no fields
                        above.append((fields, end))
                        fields, end = field.fields, at + size
                        if len(above) > _MAX_DEPTH:
                            return
            elif kind == _START:
                left -= 0 if field is None else field.width
                above.append((fields, end))
                fields = {} if field is None else field.fields
                if len(above) > _MAX_DEPTH:
                    return
            elif kind == _END:
                fields, end = above.pop()
            elif kind > _FIXED32:
                return
            else:
                if field is not None and field.packed is not None:
                    left -= field.width
                if kind == _VARINT:
                    _, at = _varint(payload, at)
                else:
                    at += 8 if kind == _FIXED64 else 4
    except IndexError:
        return
    finally:
        room.left, room.work = left, work


def max_messages(values: pa.BinaryArray, fields: CountedFields) -> Ints:
    """Returns the maximum number of items in each payload that take ``MESSAGE_WORK``, int64[n].

    Counts all bytes that may begin the tag of such an item; if packed items become JSON, counts all bytes.
    """
    begins = np.zeros(256, np.bool_)
    for number, field in _all_fields(fields):
        if field.has_messages and field.packed is not None:
            begins[:] = True
        for tag in (number << 3 | _BYTES, number << 3 | _START) if field.has_messages else ():
            begins[tag if tag < 0x80 else tag & 0x7F | 0x80] = True
    return count_bytes(values, begins)


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    """Returns a varint and the position after it; raises IndexError at the end of the payload."""
    number = payload[at]
    at += 1
    if number < 0x80:
        return number, at
    number &= 0x7F
    for shift in range(7, 70, 7):
        byte = payload[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise IndexError
