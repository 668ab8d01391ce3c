"""Parses the definition of a PROTOBUF_NATIVE schema, and makes PROTOBUF_NATIVE schemas of descriptor files.

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
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from pulsar_spark.errors import OptionError, SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType, parse_json
from pulsar_spark.unparsable import UNPARSABLE

_F = FieldDescriptorProto
T = TypeVar("T")

WAY_OUT = "Use valueFormat=raw, and decode the values in the query"
MESSAGES = frozenset({_F.TYPE_MESSAGE, _F.TYPE_GROUP})
# Column types of scalar fields, as in Spark's from_protobuf with upcast.unsigned.ints.
UNSIGNED = pa.decimal128(20, 0)
SCALARS: dict[int, pa.DataType] = {
    _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_FLOAT: pa.float32(),
    _F.TYPE_INT64: pa.int64(),
    _F.TYPE_SINT64: pa.int64(),
    _F.TYPE_SFIXED64: pa.int64(),
    _F.TYPE_UINT64: UNSIGNED,
    _F.TYPE_FIXED64: UNSIGNED,
    _F.TYPE_INT32: pa.int32(),
    _F.TYPE_SINT32: pa.int32(),
    _F.TYPE_SFIXED32: pa.int32(),
    _F.TYPE_UINT32: pa.int64(),
    _F.TYPE_FIXED32: pa.int64(),
    _F.TYPE_BOOL: pa.bool_(),
    _F.TYPE_STRING: pa.string(),
    _F.TYPE_BYTES: pa.binary(),
    _F.TYPE_ENUM: pa.string(),
}
_TIME_FIELDS = [
    ("seconds", _F.TYPE_INT64, _F.LABEL_OPTIONAL),
    ("nanos", _F.TYPE_INT32, _F.LABEL_OPTIONAL),
]
_TIMES = {"Timestamp": pa.timestamp("us", "UTC"), "Duration": pa.duration("us")}
# Default features of a file, by its syntax.
_FEATURES = {
    "proto2": FeatureSet(field_presence=FeatureSet.EXPLICIT, enum_type=FeatureSet.CLOSED),
    "proto3": FeatureSet(field_presence=FeatureSet.IMPLICIT, enum_type=FeatureSet.OPEN),
    "editions": FeatureSet(field_presence=FeatureSet.EXPLICIT, enum_type=FeatureSet.OPEN),
}
_EDITIONS = (1000, 1001)  # editions 2023 and 2024
_MAX_NUMBER = 2**29 - 1
_RESERVED = range(19_000, 20_000)
_MAX_TYPES = 10_000  # maximum number of messages, and of enums
_MAX_TEXT = 1_000  # maximum characters of a full name, or of a default


class DefinedMessage(NamedTuple):
    """A message of a schema.

    Attributes:
        syntax: "proto2", "proto3", "editions", or a syntax or edition that this version does not know.
        features: features of the message, which its fields inherit.
    """

    name: str
    proto: DescriptorProto
    syntax: str
    features: FeatureSet

    @property
    def time(self) -> pa.DataType | None:
        """Returns the column type of a Timestamp or Duration; None: the message becomes a struct."""
        if len(self.proto.field) != len(_TIME_FIELDS):
            return None
        fields = [(field.name, field.type, field.label) for field in self.proto.field]
        return _TIMES.get(self.proto.name) if fields == _TIME_FIELDS else None


class DefinedEnum(NamedTuple):
    """An enum of a schema.

    Attributes:
        names: number -> its first name.
        is_closed: True if a number without a name is not a value of the enum, as in proto2.
    """

    name: str
    names: Mapping[int, str]
    is_closed: bool


@dataclass(frozen=True, slots=True)
class ProtobufDefinition:
    """The messages and enums that a schema defines, by full name."""

    root: str
    messages: Mapping[str, DefinedMessage]
    enums: Mapping[str, DefinedEnum]

    def type_of(self, message: DefinedMessage, field: _F) -> int:
        """Returns the type of a message's field, also if the descriptor has only the type's name."""
        if not field.HasField("type"):
            is_enum = field.type_name.removeprefix(".") in self.enums
            return _F.TYPE_ENUM if is_enum else _F.TYPE_MESSAGE
        features = features_of(field.options, message.features)
        if field.type == _F.TYPE_MESSAGE and features.message_encoding == FeatureSet.DELIMITED:
            inner = self.messages.get(field.type_name.removeprefix("."))
            entries = [each for each in (message, inner) if each and each.proto.options.map_entry]
            return _F.TYPE_MESSAGE if entries else _F.TYPE_GROUP
        return field.type


def type_named(defined: Mapping[str, T], field: _F, path: str) -> T:
    """Returns the message or enum of a field; raises UnsupportedError if the schema does not define it."""
    try:
        return defined[field.type_name.removeprefix(".")]
    except KeyError:
        raise UnsupportedError(
            f"field {path} is of type {field.type_name!r}, which the schema does not define", advice=WAY_OUT
        ) from None


def parse(schema: Schema) -> ProtobufDefinition:
    """Parses the definition of a schema.

    Raises:
        SchemaError: the definition is malformed.
        UnsupportedError: the definition is larger than this version reads.
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
                _define(enums, name, _enum(name, enum, message.features))
        for enum in file.enum_type:
            name = _full(file.package, enum.name)
            _define(enums, name, _enum(name, enum, _file_features(file)))
    if not isinstance(root, str) or root not in messages:
        raise malformed(f"it does not define its root message {str(root)[:200]!r}")
    return ProtobufDefinition(root, messages, enums)


def messages_of(file: FileDescriptorProto) -> Iterator[DefinedMessage]:
    """Yields all messages of a file, with nested messages; raises SchemaError for an invalid name."""
    syntax, features = file.syntax or "proto2", _file_features(file)
    if syntax == "editions" and file.edition not in _EDITIONS:
        syntax = f"edition {file.edition}"
    left = [(file.package, message, features) for message in file.message_type]
    while left:
        within, proto, features = left.pop()
        name, features = _full(within, proto.name), features_of(proto.options, features)
        yield DefinedMessage(name, proto, syntax, features)
        left.extend((name, inner, features) for inner in proto.nested_type)


def fields_of(message: DefinedMessage, path: str) -> dict[str, _F]:
    """Returns the fields of a message by name, in the order of their definition.

    Raises:
        SchemaError: fields share a name or a number, or a number is invalid.
        UnsupportedError: this version does not know the syntax of the message.
    """
    if message.syntax not in _FEATURES:
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


def features_of(options: Any, above: FeatureSet) -> FeatureSet:
    """Returns the features of a message, enum or field; ``above``: features of the enclosing definition."""
    if not options.HasField("features"):
        return above
    found = FeatureSet()
    found.CopyFrom(above)
    found.MergeFrom(options.features)
    return found


def has_presence(message: DefinedMessage, field: _F, kind: int) -> bool:
    """Whether parsers can distinguish an absent singular field from a field that is zero or empty."""
    presence = features_of(field.options, message.features).field_presence
    return presence != FeatureSet.IMPLICIT or kind in MESSAGES or field.HasField("oneof_index")


def is_required(message: DefinedMessage, field: _F) -> bool:
    """Whether a message without the field is bad."""
    presence = features_of(field.options, message.features).field_presence
    return field.label == _F.LABEL_REQUIRED or presence == FeatureSet.LEGACY_REQUIRED


def default_of(
    message: DefinedMessage,
    field: _F,
    natural: pa.DataType | None,
    target: pa.DataType,
    path: str,
) -> pa.Scalar | None:
    """Returns the default of an absent field, as ``target``; None: no default.

    Raises SchemaError if the default is not a value of the field's type, ``natural``.
    """
    text = field.default_value
    if natural is None or message.syntax == "proto3" or not field.HasField("default_value"):
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
    """Returns the error for a malformed definition."""
    return SchemaError(f"malformed Protobuf schema: {why}", advice=WAY_OUT)


def _file_features(file: FileDescriptorProto) -> FeatureSet:
    return features_of(file.options, _FEATURES.get(file.syntax or "proto2", FeatureSet()))


def _enum(name: str, proto: EnumDescriptorProto, features: FeatureSet) -> DefinedEnum:
    names: dict[int, str] = {}
    if not proto.value:
        raise malformed(f"enum {name} has no values")
    for value in proto.value:
        _check(value.name)
        names.setdefault(value.number, value.name)
    is_closed = features_of(proto.options, features).enum_type == FeatureSet.CLOSED
    return DefinedEnum(name, names, is_closed)


def _full(within: str, name: str) -> str:
    _check(within, name)
    full = f"{within}.{name}" if within else name
    _check(full)
    return full


def _check(*texts: str) -> None:
    for text in texts:
        if not isinstance(text, str):  # protobuf returns text that is not UTF-8 as bytes
            raise malformed("a text in it is not UTF-8")
        if len(text) > _MAX_TEXT:
            raise malformed(f"a text of more than {_MAX_TEXT} characters begins with {text[:40]!r}")


def _define(defined: dict[str, T], name: str, what: T) -> None:
    if name in defined:
        raise malformed(f"it defines {name} twice")
    if len(defined) == _MAX_TYPES:
        raise malformed(f"it defines more than {_MAX_TYPES} messages or enums")
    defined[name] = what


_SHOWN = 20  # maximum message names in an error
_MAKE_IT = "Make the file with protoc --include_imports --descriptor_set_out=FILE"


def protobuf_schema(descriptors: bytes, message: str) -> Schema:
    """Returns the schema for values of type ``message``, which protoc's descriptor set defines.

    The schema has only the file that defines the message and the imported files, without comments, because
    every task receives the schema.

    Raises:
        OptionError: the bytes are not a descriptor set, lack the message or an imported file, or have several
            messages of that name.
        SchemaError: a name is too long, or not UTF-8.
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
    """Returns the names of a file and of all files that it imports, directly or indirectly."""
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
