"""ProtobufDefinition: the messages and enums that a PROTOBUF_NATIVE schema defines, by full name.

The schema's data is JSON: ``fileDescriptorSet``, a serialized FileDescriptorSet in base64, and
``rootMessageTypeName``, the full name of the values' message.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from google.protobuf import text_encoding
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from pulsar_spark.errors import OptionError, SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.unparsable import UNPARSABLE
from pulsar_spark.values.definition_json import parse_json

T = TypeVar("T")

WAY_OUT = "Use valueFormat=raw, and decode the values in the query"
MESSAGES = frozenset({FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_GROUP})
# As Spark's from_protobuf with upcast.unsigned.ints.
UNSIGNED = pa.decimal128(20, 0)
SCALARS: dict[int, pa.DataType] = {
    FieldDescriptorProto.TYPE_DOUBLE: pa.float64(),
    FieldDescriptorProto.TYPE_FLOAT: pa.float32(),
    FieldDescriptorProto.TYPE_INT64: pa.int64(),
    FieldDescriptorProto.TYPE_SINT64: pa.int64(),
    FieldDescriptorProto.TYPE_SFIXED64: pa.int64(),
    FieldDescriptorProto.TYPE_UINT64: UNSIGNED,
    FieldDescriptorProto.TYPE_FIXED64: UNSIGNED,
    FieldDescriptorProto.TYPE_INT32: pa.int32(),
    FieldDescriptorProto.TYPE_SINT32: pa.int32(),
    FieldDescriptorProto.TYPE_SFIXED32: pa.int32(),
    FieldDescriptorProto.TYPE_UINT32: pa.int64(),
    FieldDescriptorProto.TYPE_FIXED32: pa.int64(),
    FieldDescriptorProto.TYPE_BOOL: pa.bool_(),
    FieldDescriptorProto.TYPE_STRING: pa.string(),
    FieldDescriptorProto.TYPE_BYTES: pa.binary(),
    FieldDescriptorProto.TYPE_ENUM: pa.string(),
}
_TIME_FIELDS = [
    ("seconds", FieldDescriptorProto.TYPE_INT64, FieldDescriptorProto.LABEL_OPTIONAL),
    ("nanos", FieldDescriptorProto.TYPE_INT32, FieldDescriptorProto.LABEL_OPTIONAL),
]
_TIMES = {"Timestamp": pa.timestamp("us", "UTC"), "Duration": pa.duration("us")}
_MAX_NUMBER = 2**29 - 1
_RESERVED = range(19_000, 20_000)
_MAX_TYPES = 10_000  # messages and enums each
_MAX_TEXT = 1_000  # characters of a name, with what it is in, and of a default


class DefinedMessage(NamedTuple):
    """A message.

    Attributes:
        name: full, without the leading point.
        proto: its descriptor.
        syntax: "proto2", "proto3", or what this version does not know.
    """

    name: str
    proto: DescriptorProto
    syntax: str

    @property
    def time(self) -> pa.DataType | None:
        """The type of a column of it where Spark's from_protobuf makes a time of it, by name and fields."""
        if len(self.proto.field) != len(_TIME_FIELDS):
            return None
        fields = [(field.name, field.type, field.label) for field in self.proto.field]
        return _TIMES.get(self.proto.name) if fields == _TIME_FIELDS else None


class DefinedEnum(NamedTuple):
    """An enum.

    Attributes:
        name: full, without the leading point.
        names: number -> the first name that it has.
        is_closed: whether other numbers are no values of it, as in proto2.
    """

    name: str
    names: Mapping[int, str]
    is_closed: bool


@dataclass(frozen=True, slots=True)
class ProtobufDefinition:
    """What a schema defines.

    Attributes:
        root: full name of the values' message.
        messages: by full name.
        enums: by full name.
    """

    root: str
    messages: Mapping[str, DefinedMessage]
    enums: Mapping[str, DefinedEnum]

    def message_of(self, field: FieldDescriptorProto, path: str) -> DefinedMessage:
        """Return the message that a field is of.

        Raises:
            UnsupportedError: it is not there.
        """
        return self._named(self.messages, field, path)

    def enum_of(self, field: FieldDescriptorProto, path: str) -> DefinedEnum:
        """Return the enum that a field is of.

        Raises:
            UnsupportedError: it is not there.
        """
        return self._named(self.enums, field, path)

    def type_of(self, field: FieldDescriptorProto) -> int:
        """Return a field's type; a field may name a message or enum alone."""
        if field.HasField("type"):
            return field.type
        is_enum = field.type_name.removeprefix(".") in self.enums
        return FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE

    def _named(self, defined: Mapping[str, T], field: FieldDescriptorProto, path: str) -> T:
        try:
            return defined[field.type_name.removeprefix(".")]
        except KeyError:
            raise UnsupportedError(
                f"field {path} is of type {field.type_name!r}, which the schema does not define",
                advice=WAY_OUT,
            ) from None


def parse(schema: Schema) -> ProtobufDefinition:
    """Read a schema's definition.

    Raises:
        SchemaError: it is malformed.
        UnsupportedError: it is larger than any that this version reads.
    """
    try:
        told: Any = parse_json(schema.data)
        root, files = told["rootMessageTypeName"], told["fileDescriptorSet"]
        parsed = FileDescriptorSet.FromString(base64.b64decode(files, validate=True))
    except (SchemaError, ValueError, TypeError, KeyError, *UNPARSABLE):
        raise malformed("it is not a JSON object with a root message and a FileDescriptorSet") from None
    messages: dict[str, DefinedMessage] = {}
    enums: dict[str, DefinedEnum] = {}
    for file in parsed.file:
        _check(file.syntax)
        for message in messages_of(file):
            _define(messages, message.name, message)
            for enum in message.proto.enum_type:
                name = _full(message.name, enum.name)
                _define(enums, name, _enum(name, enum, message.syntax))
        for enum in file.enum_type:
            name = _full(file.package, enum.name)
            _define(enums, name, _enum(name, enum, file.syntax))
    if not isinstance(root, str) or root not in messages:
        raise malformed(f"it does not define its root message {str(root)[:200]!r}")
    return ProtobufDefinition(root, messages, enums)


def messages_of(file: FileDescriptorProto) -> Iterator[DefinedMessage]:
    """Yield all messages of a file, those in others, too.

    Raises:
        SchemaError: a name is too long, or not UTF-8.
    """
    syntax = file.syntax or "proto2"
    left = [(file.package, message) for message in file.message_type]
    while left:
        within, proto = left.pop()
        name = _full(within, proto.name)
        yield DefinedMessage(name, proto, syntax)
        left.extend((name, inner) for inner in proto.nested_type)


def fields_of(message: DefinedMessage, path: str) -> dict[str, FieldDescriptorProto]:
    """Return a message's fields by name, in the order of their definition.

    Raises:
        SchemaError: two share a name or a number, or a number is none of a field.
        UnsupportedError: the message is of a syntax that this version does not know.
    """
    if message.syntax not in ("proto2", "proto3"):
        raise UnsupportedError(
            f"message {message.name} ({path or 'the root'}) is defined with syntax {message.syntax[:40]!r}",
            advice=WAY_OUT,
        )
    for field in message.proto.field:
        _check(field.name, field.type_name, field.default_value)
    fields = {field.name: field for field in message.proto.field}
    numbers = {field.number for field in message.proto.field}
    if not len(fields) == len(numbers) == len(message.proto.field):
        raise malformed(f"fields of message {message.name} share a name or a number")
    if not all(0 < number <= _MAX_NUMBER and number not in _RESERVED for number in numbers):
        raise malformed(f"a field of message {message.name} has an invalid number")
    return fields


def has_presence(message: DefinedMessage, field: FieldDescriptorProto, kind: int) -> bool:
    """Whether a singular field that is absent differs from one with its type's default."""
    return message.syntax == "proto2" or kind in MESSAGES or field.HasField("oneof_index")


def default_of(
    message: DefinedMessage,
    field: FieldDescriptorProto,
    natural: pa.DataType | None,
    target: pa.DataType,
    path: str,
) -> pa.Scalar | None:
    """Return what proto2 gives for a field that is absent, as ``target``; None: nothing.

    Raises:
        SchemaError: it is not a value of the field's type, ``natural``.
    """
    text = field.default_value
    if natural is None or message.syntax != "proto2" or not field.HasField("default_value"):
        return None
    value: object
    try:
        if pa.types.is_boolean(natural):
            value = {"true": True, "false": False}[text]
        elif pa.types.is_floating(natural):
            value = float(text)
        elif pa.types.is_binary(natural):
            value = text_encoding.CUnescape(text)
        elif pa.types.is_string(natural):
            value = text
        else:
            value = Decimal(text) if natural == UNSIGNED else int(text)
        return pa.scalar(value, natural).cast(target)
    except (ValueError, KeyError, OverflowError, InvalidOperation, pa.ArrowException):
        raise malformed(f"the default of field {path} is not a value of its type") from None


def malformed(why: str) -> SchemaError:
    """Make the error for a definition that cannot be read."""
    return SchemaError(f"malformed Protobuf schema: {why}", advice=WAY_OUT)


def _enum(name: str, proto: EnumDescriptorProto, syntax: str) -> DefinedEnum:
    names: dict[int, str] = {}
    if not proto.value:
        raise malformed(f"enum {name} has no values")
    for value in proto.value:
        _check(value.name)
        names.setdefault(value.number, value.name)
    return DefinedEnum(name, names, syntax in ("", "proto2"))


def _full(within: str, name: str) -> str:
    _check(within, name)
    full = f"{within}.{name}" if within else name
    _check(full)
    return full


def _check(*texts: str) -> None:
    for text in texts:
        if not isinstance(text, str):  # protobuf gives bytes
            raise malformed("a text in it is not UTF-8")
        if len(text) > _MAX_TEXT:
            raise malformed(f"a text of more than {_MAX_TEXT} characters begins with {text[:40]!r}")


def _define(defined: dict[str, T], name: str, what: T) -> None:
    if name in defined:
        raise malformed(f"it defines {name} twice")
    if len(defined) == _MAX_TYPES:
        raise malformed(f"it defines more than {_MAX_TYPES} messages or enums")
    defined[name] = what


_SHOWN = 20  # names of messages in an error
_MAKE_IT = "Make the file with protoc --include_imports --descriptor_set_out=FILE"


def protobuf_schema(descriptors: bytes, message: str) -> Schema:
    """Make the schema of values that are a message of a descriptor set.

    It has the file that defines the message and what that imports, without comments: tasks get all of it.

    Args:
        descriptors: a serialized FileDescriptorSet.
        message: its full name.

    Raises:
        OptionError: it is not a descriptor set, lacks the message or a file that is imported, or has several
            messages of that name.
        SchemaError: a name in it is too long, or not UTF-8.
    """
    try:
        given = FileDescriptorSet.FromString(descriptors)
    except UNPARSABLE:
        raise OptionError("the file of valueSchema is not a descriptor set", advice=_MAKE_IT) from None
    files_of: dict[str, list[FileDescriptorProto]] = {}
    for file in given.file:
        for each in messages_of(file):
            if not each.proto.options.map_entry:
                files_of.setdefault(each.name, []).append(file)
    if message not in files_of:
        raise OptionError(
            f"messageName is {message!r}, which the file of valueSchema does not define",
            advice=f"Its messages are {_shown(sorted(files_of))}" if files_of else _MAKE_IT,
        )
    defining = files_of[message]
    if len(defining) > 1:
        raise OptionError(
            f"the file of valueSchema defines {message} {len(defining)} times, in "
            f"{_shown([file.name for file in defining])}",
            advice=_MAKE_IT,
        )
    needed = _needed(defining[0], {file.name: file for file in given.file})
    kept = FileDescriptorSet(file=[file for file in given.file if file.name in needed])
    for file in kept.file:
        file.ClearField("source_code_info")
    told = {
        "fileDescriptorSet": base64.b64encode(kept.SerializeToString()).decode(),
        "rootMessageTypeName": message,
    }
    return Schema(SchemaType.PROTOBUF_NATIVE, json.dumps(told).encode())


def _needed(root: FileDescriptorProto, files: dict[str, FileDescriptorProto]) -> set[str]:
    """The names of a file and of all that it imports, directly or not."""
    found = {root.name}
    left = [root]
    while left:
        file = left.pop()
        for name in file.dependency:
            if name not in files:
                raise OptionError(
                    f"the file of valueSchema lacks {name}, which {file.name} imports", advice=_MAKE_IT
                )
            if name not in found:
                found.add(name)
                left.append(files[name])
    return found


def _shown(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
