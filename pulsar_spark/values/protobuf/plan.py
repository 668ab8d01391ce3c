"""Makes the readers of the requested fields, and the parser's descriptors. Compares two schema versions.

``check_fields`` compares the types of both versions, because protobuf's runtime reads a field's bytes by its
descriptors only: numbers that are too large lose their upper bits, zigzag numbers become other numbers, and
fields of another wire type are absent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.values.interfaces import type_name
from pulsar_spark.values.primitives import is_promotable
from pulsar_spark.values.protobuf.definition import (
    MESSAGES,
    SCALARS,
    WAY_OUT,
    DefinedEnum,
    DefinedMessage,
    ProtobufDefinition,
    default_of,
    fields_of,
    has_presence,
    is_required,
    malformed,
    type_named,
)
from pulsar_spark.values.protobuf.readers import (
    EnumReader,
    FieldReader,
    JsonReader,
    MapReader,
    NumberReader,
    Presence,
    PresentReader,
    RepeatedReader,
    SingularReader,
    StructReader,
    TextReader,
    TimeReader,
    TypeReader,
)

_F = FieldDescriptorProto
_CHOOSE = f"Choose columns with .schema(...), or: {WAY_OUT}"
_MAX_FIELDS = 10_000  # maximum columns, including nested columns
_MAX_DEPTH = 48  # maximum depth of nested messages
_REPEATED = _F.LABEL_REPEATED
_OPTIONAL = _F.LABEL_OPTIONAL
_KEYS = frozenset(SCALARS) - {_F.TYPE_DOUBLE, _F.TYPE_FLOAT, _F.TYPE_BYTES, _F.TYPE_ENUM}


class _Place(NamedTuple):
    """A field's position in the tree of fields; ``above``: full names of the messages that contain it."""

    path: str
    above: tuple[str, ...]
    is_json: bool = False

    def of(self, name: str) -> _Place:
        return self._replace(path=f"{self.path}.{name}" if self.path else name)


@dataclass(slots=True)
class ProtobufPlan:
    """Builds the readers of the requested fields, and the descriptors by which their values are parsed.

    A target of None requests all fields, with the types that the schema implies.

    Attributes:
        skips: True if fields that cannot be read are left out; False: such fields raise UnsupportedError.
        json: reader of messages that are read as JSON.
        json_messages: messages that are read as JSON, by full name.
    """

    definition: ProtobufDefinition
    skips: bool = False
    json: JsonReader = field(default_factory=JsonReader)
    json_messages: dict[str, DescriptorProto] = field(default_factory=dict)
    file: FileDescriptorProto = field(default_factory=lambda: FileDescriptorProto(name="f", syntax="proto2"))
    enums: dict[str, str] = field(default_factory=dict)  # full name of an enum -> its name in ``file``
    fields: int = 0
    unplanned: list[tuple[DefinedMessage, DescriptorProto, _Place]] = field(default_factory=list)

    def root(self, target: pa.DataType | None) -> StructReader:
        """Returns the reader of the root message; raises as ``formats.decoder``."""
        message = self.definition.messages[self.definition.root]
        root = self._struct(message, self._message(), target, _Place("", ()))
        while self.unplanned:
            self._plan_json(*self.unplanned.pop())
        return root

    def parser(self) -> Any:
        """Returns the message class that parses several values at once, as items of its repeated field f1.

        Raises UnsupportedError if a message has more fields than Protobuf's runtime accepts.
        """
        for message in self.file.message_type:
            if not message.field:  # because else protobuf's runtime accepts the invalid field number 0
                _add(message, 1, _F.TYPE_INT32, _OPTIONAL)
        rows = self.file.message_type.add(name="Rows")
        _add(rows, 1, _F.TYPE_MESSAGE, _REPEATED, ".M0")
        pool = descriptor_pool.DescriptorPool()
        try:
            pool.Add(self.file)
        except TypeError as error:  # the runtime's limit: 64 KiB for a message without its texts and lists
            raise UnsupportedError(
                f"a message of the topic's schema has too many fields for Protobuf: {error}", advice=_CHOOSE
            ) from None
        return message_factory.GetMessageClass(pool.FindMessageTypeByName("Rows"))

    def _message(self) -> DescriptorProto:
        return self.file.message_type.add(name=f"M{len(self.file.message_type)}")

    def _struct(
        self, message: DefinedMessage, own: DescriptorProto, target: pa.DataType | None, place: _Place
    ) -> StructReader:
        """Returns the reader of a message; adds the requested fields to ``own``, the parser's descriptor."""
        if len(place.above) == _MAX_DEPTH:
            raise UnsupportedError(
                f"field {place.path} of the topic's schema is of message {message.name}, which is more than "
                f"{_MAX_DEPTH} messages deep",
                advice=f"Leave the field out with .schema(...), or: {WAY_OUT}",
            )
        fields = fields_of(message, place.path)
        inside = place._replace(above=(*place.above, message.name))
        readers, columns = [], []
        for name, wanted in _asked_for(fields, target, place):
            try:
                planned = self._field(message, fields[name], own, wanted, inside)
            except UnsupportedError:
                if not self.skips or self.fields > _MAX_FIELDS:
                    raise
                continue
            if planned is not None:
                reader, kind = planned
                readers.append(reader)
                columns.append(pa.field(name, kind))
        return StructReader(pa.struct(columns) if target is None else target, readers)

    def _field(
        self,
        message: DefinedMessage,
        defined: _F,
        own: DescriptorProto,
        target: pa.DataType | None,
        place: _Place,
    ) -> tuple[FieldReader, pa.DataType] | None:
        """Returns the reader of a message's field; None: the field has no column."""
        inside = place.of(defined.name)
        path = inside.path
        self.fields += 1
        if self.fields > _MAX_FIELDS:
            raise UnsupportedError(
                f"the topic's schema has more than {_MAX_FIELDS} fields, counted up to field {path}",
                advice=WAY_OUT,
            )
        attribute = f"f{defined.number}"
        is_repeated = defined.label == _REPEATED
        kind = self.definition.type_of(message, defined)
        if is_repeated and kind == _F.TYPE_MESSAGE:
            entry = type_named(self.definition.messages, defined, path)
            if entry.proto.options.map_entry:
                return self._map(entry, defined, own, target, inside)
        wanted = target
        if is_repeated and target is not None:
            if not pa.types.is_list(target):
                raise _other_type(path, "a list", target)
            wanted = target.value_type
        reader = self._value(defined, kind, own, wanted, inside)
        if reader is None:
            return None
        if is_repeated:
            column = pa.list_(pa.field("element", reader.type)) if target is None else target
            return RepeatedReader(defined.name, attribute, reader, column), column
        if defined.HasField("oneof_index"):
            _join_oneof(own, defined.oneof_index)
        presence = Presence.EXPLICIT if has_presence(message, defined, kind) else Presence.NOT_ZERO
        natural = None if place.is_json else SCALARS.get(kind)  # None: no default; JSON omits absent fields
        default = default_of(message, defined, natural, reader.type, path)
        must_be = is_required(message, defined)
        single = SingularReader(defined.name, attribute, reader, presence, default, must_be)
        return single, reader.type

    def _value(
        self,
        defined: _F,
        kind: int,
        own: DescriptorProto,
        target: pa.DataType | None,
        place: _Place,
    ) -> TypeReader | None:
        """Adds a field, but not a map, to the descriptor ``own``; returns its reader; None: no column."""
        label = _REPEATED if defined.label == _REPEATED else _OPTIONAL
        if kind in MESSAGES:
            message = type_named(self.definition.messages, defined, place.path)
            if place.is_json or (message.name in place.above and target in (None, pa.string())):
                return self._json(message, defined, kind, own, place)
            inner = self._message()
            _add(own, defined.number, kind, label, f".{inner.name}")
            if not message.proto.field and target in (None, pa.bool_()):
                return PresentReader()
            if message.time is not None:
                return self._time(message, inner, target, place)
            if target is not None and not pa.types.is_struct(target):
                raise _other_type(place.path, "a struct", target)
            struct = self._struct(message, inner, target, place)
            return struct if struct.fields or target is not None else None
        natural = SCALARS[kind]
        column = natural if target is None else target
        if not is_promotable(natural, column):
            raise _other_type(place.path, str(natural), column)
        if kind == _F.TYPE_ENUM:
            enum = type_named(self.definition.enums, defined, place.path)
            name = self._closed(enum) if enum.is_closed else ""
            own_kind = kind if enum.is_closed else _F.TYPE_INT32
            _add(own, defined.number, own_kind, label, name)
            return EnumReader(column, enum.names, f"UNKNOWN_ENUM_VALUE_{enum.name.rpartition('.')[2]}")
        if natural != pa.string():
            _add(own, defined.number, kind, label)
            return TextReader(column) if column == pa.string() else NumberReader(column, natural)
        # Adds text as bytes, because the runtime refuses a whole message if one text is not UTF-8.
        _add(own, defined.number, _F.TYPE_BYTES, label)
        return TextReader(column) if column == natural else NumberReader(column, pa.binary())

    def _map(
        self,
        entry: DefinedMessage,
        defined: _F,
        own: DescriptorProto,
        target: pa.DataType | None,
        place: _Place,
    ) -> tuple[FieldReader, pa.DataType] | None:
        """Returns the reader of a map; None: the map's values have no column."""
        fields = fields_of(entry, place.path)
        if set(fields) != {"key", "value"} or any(part.label == _REPEATED for part in fields.values()):
            raise malformed(f"field {place.path} is a map whose entries do not have one key and one value")
        key_kind, value_kind = (self.definition.type_of(entry, fields[name]) for name in ("key", "value"))
        if key_kind not in _KEYS:
            raise malformed(f"field {place.path} is a map with an invalid type of keys")
        if target is not None and not pa.types.is_map(target):
            raise _other_type(place.path, "a map", target)
        wanted = (None, None) if target is None else (target.key_type, target.item_type)
        inner = self._message()
        _add(own, defined.number, _F.TYPE_MESSAGE, _REPEATED, f".{inner.name}")
        key = self._value(fields["key"], key_kind, inner, wanted[0], place.of("key"))
        value = self._value(fields["value"], value_kind, inner, wanted[1], place.of("value"))
        if key is None or value is None:
            return None
        column = pa.map_(key.type, pa.field("value", value.type)) if target is None else target
        # Keys that are not UTF-8 become "", because Arrow's keys are never null, even in bad rows.
        no_text = pa.scalar("").cast(key.type) if key_kind == _F.TYPE_STRING else None
        parts = [
            SingularReader("key", f"f{fields['key'].number}", key, Presence.ALWAYS, no_text),
            SingularReader("value", f"f{fields['value'].number}", value, Presence.ALWAYS),
        ]
        if place.is_json:
            self.json_messages[f".{inner.name}"] = inner
            self.json.fields |= {f"{inner.name}.{part.attribute}": part for part in parts}
        entries = StructReader(pa.struct([column.key_field, column.item_field]), parts)
        return MapReader(defined.name, f"f{defined.number}", parts[0].attribute, entries, column), column

    def _json(
        self, message: DefinedMessage, defined: _F, kind: int, own: DescriptorProto, place: _Place
    ) -> JsonReader:
        """Adds a field whose messages are read as JSON to ``own``; plans each type of message only once."""
        inner = self.json_messages.get(message.name)
        if inner is None:
            inner = self.json_messages[message.name] = self._message()
            self.unplanned.append((message, inner, place))
        label = _REPEATED if defined.label == _REPEATED else _OPTIONAL
        _add(own, defined.number, kind, label, f".{inner.name}")
        return self.json

    def _plan_json(self, message: DefinedMessage, own: DescriptorProto, place: _Place) -> None:
        inside = place._replace(is_json=True)
        for each in fields_of(message, place.path).values():
            planned = self._field(message, each, own, None, inside)
            assert planned is not None
            self.json.fields[f"{own.name}.f{each.number}"] = planned[0]

    def _time(
        self, message: DefinedMessage, inner: DescriptorProto, target: pa.DataType | None, place: _Place
    ) -> TimeReader:
        fields = fields_of(message, place.path)
        if target not in (None, message.time):
            raise _other_type(place.path, str(message.time), target)
        for part in fields.values():
            _add(inner, part.number, part.type, _OPTIONAL)
        seconds, nanos = (attrgetter(f"f{fields[name].number}") for name in ("seconds", "nanos"))
        return TimeReader(message.time, seconds, nanos)

    def _closed(self, enum: DefinedEnum) -> str:
        """Adds a closed enum to ``file``, so the runtime ignores unknown numbers; returns its type name."""
        name = self.enums.get(enum.name)
        if name is None:
            name = self.enums[enum.name] = f"E{len(self.enums)}"
            own = self.file.enum_type.add(name=name)
            for place, number in enumerate(enum.names):
                own.value.add(name=f"{name}_{place}", number=number)
        return f".{name}"


def _asked_for(
    fields: Iterable[str], target: pa.DataType | None, place: _Place
) -> list[tuple[str, pa.DataType | None]]:
    if target is None:
        return [(name, None) for name in fields]
    if not pa.types.is_struct(target):
        raise _other_type(place.path or "the root", "a struct", target)
    names = [column.name for column in target]
    for number, name in enumerate(names):
        if name not in fields or name in names[:number]:
            raise SchemaError(
                f"the topic's schema has no field {place.of(name).path}, or the field is requested twice",
                advice="Request only fields that the schema has",
            )
    return [(column.name, column.type) for column in target]


def _add(message: DescriptorProto, number: int, kind: int, label: int, type_name: str = "") -> None:
    own = message.field.add(name=f"f{number}", number=number)
    own.type, own.label = kind, label  # type: ignore[assignment]
    if type_name:
        own.type_name = type_name


def _join_oneof(message: DescriptorProto, index: int) -> None:
    """Adds the message's last field to a oneof, so the runtime keeps only the oneof's last parsed field."""
    name = f"o{index}"
    names = [oneof.name for oneof in message.oneof_decl]
    if name not in names:
        message.oneof_decl.add(name=name)
        names.append(name)
    message.field[-1].oneof_index = names.index(name)


def _other_type(path: str, own: str, target: pa.DataType) -> SchemaError:
    return SchemaError(
        f"field {path} of the topic's schema is {own} and cannot be read as {type_name(target)}",
        advice=f"Request {own}, or leave the field out",
    )


# The types to which a field's type may change, because the wire form is the same and no value is lost.
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
    """Checks the types of the requested fields that both versions define.

    Raises SchemaError, with the field's path, if the reader would misread the writer's field.
    """
    if writer != reader:
        root = reader.messages[reader.root]
        checker = _Checker(writer, reader)
        checker.message(writer.messages[writer.root], root, target, "")
        for theirs, own, path in checker.json:  # the loop appends to the list
            checker.all_fields(theirs, own, path)


class _Checker:
    def __init__(self, writer: ProtobufDefinition, reader: ProtobufDefinition) -> None:
        self._writer = writer
        self._reader = reader
        self._by_number: dict[str, dict[int, _F]] = {}  # writer's message -> its fields by number
        self._by_name: dict[str, dict[str, _F]] = {}  # reader's message -> its fields by name
        self.json: list[tuple[DefinedMessage, DefinedMessage, str]] = []  # messages that are read as JSON
        self._json: set[tuple[str, str]] = set()

    def all_fields(self, theirs: DefinedMessage, own: DefinedMessage, path: str) -> None:
        self.message(theirs, own, [pa.field(each.name, pa.string()) for each in own.proto.field], path)

    def message(
        self, theirs: DefinedMessage, own: DefinedMessage, target: Iterable[pa.Field], path: str
    ) -> None:
        # A message's fields are indexed once, because a large message may be the type of many fields.
        if theirs.name not in self._by_number:
            self._by_number[theirs.name] = {field.number: field for field in theirs.proto.field}
        if own.name not in self._by_name:
            self._by_name[own.name] = fields_of(own, path)
        by_number, by_name = self._by_number[theirs.name], self._by_name[own.name]
        for column in target:
            field = by_name[column.name]
            written = by_number.get(field.number)
            if written is not None:
                old, new = self._writer.type_of(theirs, written), self._reader.type_of(own, field)
                below = f"{path}.{column.name}" if path else column.name
                self._field((written, old), (field, new), column.type, below)

    def _field(
        self, theirs_and_old: tuple[_F, int], own_and_new: tuple[_F, int], target: pa.DataType, path: str
    ) -> None:
        (theirs, old), (own, new) = theirs_and_old, own_and_new
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
        inner = type_named(self._reader.messages, own, path)
        if written.time != inner.time:
            raise _mismatch(path, written.name, inner.name)
        if pa.types.is_struct(kind):  # the message is not a time
            self.message(written, inner, kind, path)
        elif kind == pa.string() and (written.name, inner.name) not in self._json:
            self._json.add((written.name, inner.name))
            self.json.append((written, inner, path))


def _name(kind: int) -> str:
    return _F.Type.Name(kind).removeprefix("TYPE_").lower()  # type: ignore[arg-type]


def _mismatch(path: str, theirs: str, own: str) -> SchemaError:
    return SchemaError(f"field {path}: {theirs} cannot be read as {own}", advice=WAY_OUT)
