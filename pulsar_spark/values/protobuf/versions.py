"""What keeps values of one version of a Protobuf schema from being read by the descriptors of another.

Protobuf's runtime takes a field's bytes for whatever its own descriptors say: numbers that are too large lose
their upper bits, zigzag numbers become others, and what has another wire type is absent.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from pulsar_spark.errors import SchemaError
from pulsar_spark.values.protobuf.definition import (
    MESSAGES,
    WAY_OUT,
    DefinedMessage,
    ProtobufDefinition,
    fields_of,
)

_F = FieldDescriptorProto
# What fields of a type may become, beside the type itself: the same on the wire, and no value is lost.
_MAY_BECOME: Final[dict[int, tuple[int, ...]]] = {
    _F.TYPE_BOOL: (_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64),
    _F.TYPE_ENUM: (_F.TYPE_INT32, _F.TYPE_INT64),
    _F.TYPE_INT32: (_F.TYPE_INT64,),
    _F.TYPE_SINT32: (_F.TYPE_SINT64,),
    _F.TYPE_UINT32: (_F.TYPE_UINT64, _F.TYPE_INT64),
    _F.TYPE_STRING: (_F.TYPE_BYTES,),
    _F.TYPE_BYTES: (_F.TYPE_STRING,),
}


def check_fields(writer: ProtobufDefinition, reader: ProtobufDefinition, target: pa.StructType) -> None:
    """Check that the fields of a column mean the same in both versions, as far as the writer has them.

    Args:
        writer: the version of the values.
        reader: the version that they are read by.
        target: the column's type, whose fields the reader has.

    Raises:
        SchemaError: one does not; with its path.
    """
    if writer != reader:
        root = reader.messages[reader.root]
        _Checker(writer, reader).message(writer.messages[writer.root], root, target, "")


class _Checker:
    def __init__(self, writer: ProtobufDefinition, reader: ProtobufDefinition) -> None:
        self._writer = writer
        self._reader = reader
        self._by_number: dict[str, dict[int, _F]] = {}  # the writer's fields, by message
        self._by_name: dict[str, dict[str, _F]] = {}  # the reader's

    def message(self, theirs: DefinedMessage, own: DefinedMessage, target: pa.DataType, path: str) -> None:
        # Each message is looked through once: it may be large, and in many fields.
        if theirs.name not in self._by_number:
            self._by_number[theirs.name] = {field.number: field for field in theirs.proto.field}
        if own.name not in self._by_name:
            self._by_name[own.name] = fields_of(own, path)
        by_number, by_name = self._by_number[theirs.name], self._by_name[own.name]
        for column in target:
            field = by_name[column.name]
            written = by_number.get(field.number)
            if written is not None:
                self._field(written, field, column.type, f"{path}.{column.name}" if path else column.name)

    def _field(self, theirs: _F, own: _F, target: pa.DataType, path: str) -> None:
        old, new = self._writer.type_of(theirs), self._reader.type_of(own)
        if theirs.label == _F.LABEL_REPEATED != own.label:
            raise _mismatch(path, f"repeated {_name(old)}", _name(new))
        if old != new and new not in _MAY_BECOME.get(old, ()):
            raise _mismatch(path, _name(old), _name(new))
        written = self._writer.messages.get(theirs.type_name.removeprefix("."))
        if new not in MESSAGES or written is None:
            return
        kind = target
        if pa.types.is_map(kind):
            kind = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        elif pa.types.is_list(kind):
            kind = kind.value_type
        inner = self._reader.message_of(own, path)
        if written.time != inner.time:
            raise _mismatch(path, written.name, inner.name)
        if pa.types.is_struct(kind):  # and not a time
            self.message(written, inner, kind, path)


def _name(kind: int) -> str:
    return _F.Type.Name(kind).removeprefix("TYPE_").lower()  # type: ignore[arg-type]


def _mismatch(path: str, theirs: str, own: str) -> SchemaError:
    return SchemaError(f"field {path}: {theirs} cannot be read as {own}", advice=WAY_OUT)
