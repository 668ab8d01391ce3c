"""The memory that items of repeated fields and maps in a payload take, found without parsing it.

They take memory twice: in protobuf's runtime, which parses a whole payload at once, and then as columns. The
runtime doubles the capacity of an array as it grows and keeps the old memory: at most three times the items.
Texts and bytes are also copied on their way to columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from pulsar_spark.arrow.arrays import Ints, count_bytes
from pulsar_spark.values.protobuf.readers import (
    EnumReader,
    MapReader,
    RepeatedReader,
    SingularReader,
    StructReader,
    TypeReader,
)
from pulsar_spark.values.value_bounds import ValueRoom, item_width, most_growth

_VARINT, _FIXED64, _BYTES, _START, _END, _FIXED32 = range(6)
_F = FieldDescriptorProto
_EIGHT = (_F.TYPE_DOUBLE, _F.TYPE_FIXED64, _F.TYPE_SFIXED64)
_FOUR = (_F.TYPE_FLOAT, _F.TYPE_FIXED32, _F.TYPE_SFIXED32)
# Bytes of an item that is packed; other items are varints.
_PACKED_SIZES = dict.fromkeys(_EIGHT, 8) | dict.fromkeys(_FOUR, 4)
# Bytes of an item in the runtime; other items have 8.
_ELEMENT_SIZES = {_F.TYPE_BOOL: 1, _F.TYPE_STRING: 16, _F.TYPE_BYTES: 16} | dict.fromkeys(
    (*_FOUR, _F.TYPE_INT32, _F.TYPE_UINT32, _F.TYPE_SINT32, _F.TYPE_ENUM), 4
)
_HEADER = 40  # bytes of a message or of an array, beside its fields or items
_NOT_PACKED = (_F.TYPE_BYTES, _F.TYPE_MESSAGE, _F.TYPE_GROUP)
COPIES = 3  # of a payload: Python's bytes, and texts in the runtime and on their way to columns
MESSAGE_WORK = 1.6  # units that a message in a repeated field takes
_FIELD_WORK = 0.45  # and any field on the wire, because it is found here and then read
_PACKED_WORK = 0.125  # and an item that is packed, which is only read
PAID_WORK = 0.2  # and that each byte pays for: honest messages have ten and more
_MAX_DEPTH = 100  # that the runtime takes
_NOT_LAST = bytes(range(128, 256))  # bytes of a varint that others follow


@dataclass(frozen=True, slots=True)
class CountedField:
    """A field with items, or with messages that may have some.

    Attributes:
        width: bytes that an item takes; 0 of a field that is not repeated.
        fields: of its messages.
        packed: bytes of an item that is packed, 0: a varint; None where items are never packed.
        has_messages: whether its items are messages.
    """

    width: int
    fields: CountedFields
    packed: int | None
    has_messages: bool = False


CountedFields: TypeAlias = "Mapping[int, CountedField]"  # by their numbers


def counted_fields(struct: StructReader, own: DescriptorProto, file: FileDescriptorProto) -> CountedFields:
    """Make what is counted of a message.

    Args:
        struct: how it is read.
        own: its descriptor.
        file: has those of the messages in it, ``.M0`` and so on.
    """
    defined = {field.number: field for field in own.field}
    found = {}
    for field in struct.fields:
        assert isinstance(field, RepeatedReader | MapReader | SingularReader)
        number = int(field.attribute.removeprefix("f"))
        reader = field.entry if isinstance(field, MapReader) else field.reader
        fields: CountedFields = {}
        if isinstance(reader, StructReader):
            inner = file.message_type[int(defined[number].type_name.removeprefix(".M"))]
            fields = counted_fields(reader, inner, file)
        if isinstance(field, SingularReader):
            if fields:
                found[number] = CountedField(0, fields, None)
            continue
        kind = defined[number].type
        packed = None if kind in _NOT_PACKED else _PACKED_SIZES.get(kind, 0)
        width = item_width(field.type) + _added_text(reader) + 3 * _ELEMENT_SIZES.get(kind, 8)
        if kind == _F.TYPE_MESSAGE:
            width += _message_size(file.message_type[int(defined[number].type_name.removeprefix(".M"))])
        found[number] = CountedField(width, fields, packed, kind == _F.TYPE_MESSAGE)
    return found


def _message_size(message: DescriptorProto) -> int:
    """Bytes, about, that the runtime takes for a message, whatever is set."""
    return _HEADER + sum(
        8 if field.label == _F.LABEL_REPEATED else _ELEMENT_SIZES.get(field.type, 8)
        for field in message.field
    )


def _added_text(reader: TypeReader) -> int:
    """Bytes, at most, of text that a value gets from the schema: names of enums and defaults."""
    if isinstance(reader, EnumReader):
        unknown = len(reader.unknown.encode()) + 12  # the number after it
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
    """Bytes, at most, that a payload takes whatever its size: in the runtime, and as text of the schema."""
    return _message_size(message) + _added_text(root)


def growth(fields: CountedFields) -> float:
    """Returns the maximum bytes for each payload byte, in columns and the runtime."""
    return COPIES + most_growth(_lists(fields))


def _lists(fields: CountedFields) -> Iterator[tuple[int, int]]:
    for field in fields.values():
        if field.packed is None:
            yield field.width, 2  # a separate item has a tag, and a length or a value
        else:
            size = field.packed or 1
            yield field.width, size
            yield field.width + _HEADER, 2 + size
        yield from _lists(field.fields)


def take_items(room: ValueRoom, payload: bytes, fields: CountedFields) -> None:
    """Take the room of a payload and all its items, until none is left; what is malformed ends it, too.

    Fields on the wire and their items also count as work.
    """
    left, work = room.left - COPIES * len(payload), room.work
    at, end = 0, len(payload)
    above: list[tuple[CountedFields, int]] = []  # messages that this one is in
    try:
        # Millions of fields may have two bytes each, so this loop looks up no attribute that it need not.
        while left >= 0 and work >= 0:
            while at >= end:
                if not above:
                    return
                fields, end = above.pop()
            tag = payload[at]  # of one byte, as most are
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
                        packed = _packed(payload[at : at + size], field.packed)
                        left -= field.width * packed + _HEADER
                        work -= packed * _PACKED_WORK
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


def most_messages(values: pa.BinaryArray, fields: CountedFields) -> Ints:
    """How many bytes of each of n payloads may begin an item of a repeated field of messages, int64[n]."""
    begins = np.zeros(256, np.bool_)
    open_fields = [fields]
    while open_fields:
        for number, field in open_fields.pop().items():
            for tag in (number << 3 | _BYTES, number << 3 | _START) if field.has_messages else ():
                begins[tag if tag < 0x80 else tag & 0x7F | 0x80] = True
            open_fields.append(field.fields)
    return count_bytes(values, begins)


def _packed(items: bytes, size: int) -> int:
    return len(items) // size if size else len(items.translate(None, _NOT_LAST))


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    """Read one; returns it and the position after it; IndexError after the end."""
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
