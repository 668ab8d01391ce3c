"""Protobuf definitions of a few lines, random ones, and what Spark's from_protobuf makes of a message.

``python -m tests.values.protobuf_files`` prints rows, for a process that was told which runtime
to use.
"""

import base64
import datetime as dt
import json
import sys
from decimal import Decimal
from operator import itemgetter

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.internal import api_implementation

from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats

TYPES = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in TYPES.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_GROUP", "TYPE_ENUM")
}


def file(text, syntax="proto3", package="p"):
    """A file: a line ``message A``, ``enum A`` or ``[label] type name = number [= default]``.

    Labels: ``repeated``, ``required``, ``optional``, ``oneof`` (a message has one), ``map`` (of string).
    """
    made = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax=syntax)
    owner = None
    for line in filter(None, map(str.strip, text.splitlines())):
        words = line.replace("=", " ").split()
        if words[0] in ("message", "enum"):
            kind = made.message_type if words[0] == "message" else made.enum_type
            owner = kind.add(name=words[1])
        elif isinstance(owner, descriptor_pb2.EnumDescriptorProto):
            owner.value.add(name=words[0], number=int(words[1]))
        else:
            add_field(owner, words, package, [enum.name for enum in made.enum_type], syntax)
    for message in made.message_type:
        if any(field.HasField("oneof_index") for field in message.field):
            message.oneof_decl.add(name="one")
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"of_{field.name}")
    return made


def add_field(owner, words, package, enums, syntax):
    label = words.pop(0) if words[0] in ("repeated", "required", "optional", "oneof", "map") else ""
    kind, name, number, *default = words
    if label == "map":
        entry = owner.nested_type.add(name=f"{name}_entry")
        entry.options.map_entry = True
        add_field(entry, ["string", "key", "1"], package, enums, "map")
        add_field(entry, [kind, "value", "2"], package, enums, "map")
        made = owner.field.add(name=name, number=int(number), type=TYPES.TYPE_MESSAGE, label=3)
        made.type_name = f".{package}.{owner.name}.{entry.name}"
        return
    made = owner.field.add(name=name, number=int(number))
    made.label = {"repeated": 3, "required": 2}.get(label, 1)
    if kind in SCALARS:
        made.type = SCALARS[kind]
    else:
        made.type = TYPES.TYPE_ENUM if kind in enums else TYPES.TYPE_MESSAGE
        made.type_name = kind if kind.startswith(".") else f".{package}.{kind}"
    if default:
        made.default_value = default[0]
    if label == "oneof":  # all of a message are of the same, which stands before those of optional fields
        made.oneof_index = 0
    if label == "optional" and syntax == "proto3":
        made.proto3_optional = True


def schema(files, root, properties=None):
    """As the Java client makes it."""
    files = files if isinstance(files, list) else [files]
    data = descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()
    told = {
        "fileDescriptorSet": base64.b64encode(data).decode(),
        "rootMessageTypeName": root,
        "rootFileDescriptorName": files[-1].name,
    }
    return Schema(SchemaType.PROTOBUF_NATIVE, json.dumps(told).encode(), properties or {})


def own_file(module):
    """The file that a generated module is of."""
    return descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def message_class(files, root):
    """The runtime's own class of a message."""
    pool = descriptor_pool.DescriptorPool()
    for each in files if isinstance(files, list) else [files]:
        pool.Add(each)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(root))


# -------------------------------------------------------------------------------- what Spark makes of it


def row_class(files, root):
    """The runtime's own class of a message whose maps are repeated entries, as they are in Java."""
    plain = [descriptor_pb2.FileDescriptorProto.FromString(each.SerializeToString()) for each in files]
    for each in plain:
        for message in each.message_type:
            for entry in message.nested_type:
                entry.options.map_entry = False
    return message_class(plain, root)


def is_repeated(field):
    """Old versions of the runtime know the label alone, new ones do not."""
    return field.is_repeated if hasattr(field, "is_repeated") else field.label == TYPES.LABEL_REPEATED


def is_required(field):
    return field.is_required if hasattr(field, "is_required") else field.label == TYPES.LABEL_REQUIRED


def row_of(message):
    """A message as from_protobuf makes a row of it, with unsigned integers upcast; maps by their keys."""
    row: dict[str, object] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.name.endswith("_entry"):
            parts = field.message_type.fields_by_name
            entries = {
                value_of(parts["key"], entry.key): value_of(parts["value"], entry.value) for entry in value
            }
            row[field.name] = {key: entries[key] for key in sorted(entries)}
        elif is_repeated(field):
            row[field.name] = [value_of(field, each) for each in value]
        elif field.has_presence:
            is_null = not (message.HasField(field.name) or field.has_default_value)
            row[field.name] = None if is_null else value_of(field, value)
        else:
            is_null = not value and str(value) != "-0.0"
            row[field.name] = None if is_null else value_of(field, value)
    return row


def value_of(field, value):
    if field.type == FieldDescriptor.TYPE_STRING and isinstance(value, bytes):
        raise UnicodeDecodeError("utf-8", value, 0, 1, "proto2 takes all bytes")
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named else f"UNKNOWN_ENUM_VALUE_{field.enum_type.name}_{value}"
    if field.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64):
        return Decimal(value)
    if field.message_type is None:
        return value
    if field.message_type.name in ("Timestamp", "Duration"):
        micros = value.seconds * 10**6 + int(value.nanos / 1000)
        since = dt.timedelta(microseconds=micros)
        if field.message_type.name == "Duration":
            return since
        return dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + since
    return row_of(value)


def plain_rows(column):
    """A column's rows as ``row_of`` gives them, with dicts for maps, by their keys."""
    return [_plain(row, column.type) for row in column.to_pylist()]


def _plain(value, kind):
    if value is None:
        return None
    if pa.types.is_map(kind):
        found = {key: _plain(item, kind.item_type) for key, item in sorted(value, key=itemgetter(0))}
        assert len(found) == len(value)
        return found
    if pa.types.is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    return value


# ---------------------------------------------------------------------------------------- random ones


def random_file(own, syntax):
    """A file of some messages, of which M0 may hold all others."""
    count = own.randint(1, 4)
    lines = ["enum E", "ZERO = 0", "TWO = 2", "NEGATIVE = -1"]
    for number in reversed(range(count)):
        lines.append(f"message M{number}")
        for place in range(own.randint(1, 6)):
            below = [f"M{each}" for each in range(number + 1, count)]
            kind = own.choice([*SCALARS, "E", *below, *below])
            labels = ["", "", "repeated", "map"]
            labels += ["optional", "oneof"] if syntax == "proto3" else ["optional", "required"]
            label = own.choice(labels)
            default = ""
            if syntax == "proto2" and label == "optional" and kind not in below:
                default = {"bool": "= true", "string": "= dflt", "bytes": "= \\377d", "E": "= TWO"}.get(
                    kind, "= 7"
                )
            number_of_field = own.randint(1, 15) * 100 + place
            lines.append(f"{label} {kind} f{place} = {number_of_field} {default}")
    return file("\n".join(lines), syntax)


def fill(own, message, depth=0):
    """Set some fields; messages that contain themselves end."""
    if depth > 7:
        return
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            part = field.message_type.fields_by_name["value"]
            for _ in range(own.choice([0, 0, 1, 3])):
                key = own.choice(["", "k", "\u00e9", "longer key"])
                if part.message_type is not None:
                    fill(own, getattr(message, field.name)[key], depth + 1)
                else:
                    getattr(message, field.name)[key] = random_value(own, part)
        elif is_repeated(field):
            for _ in range(own.choice([0, 0, 1, 3])):
                if field.message_type is not None:
                    fill(own, getattr(message, field.name).add(), depth + 1)
                else:
                    getattr(message, field.name).append(random_value(own, field))
        elif is_required(field) or own.random() < 0.7:
            if field.message_type is not None:
                getattr(message, field.name).SetInParent()
                fill(own, getattr(message, field.name), depth + 1)
            else:
                setattr(message, field.name, random_value(own, field))


def random_value(own, field):
    kind = field.type
    if field.enum_type is not None:
        is_open = field.file.serialized_pb.endswith(b"proto3")
        return own.choice([0, 2, -1, 5] if is_open else [0, 2, -1])
    if kind in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return own.choice([0.0, -0.0, 1.5, -2.0, float("inf")])
    if kind == FieldDescriptor.TYPE_BOOL:
        return own.random() < 0.5
    if kind == FieldDescriptor.TYPE_STRING:
        return own.choice(["", "x", "\u20ac uro", "a longer text"])
    if kind == FieldDescriptor.TYPE_BYTES:
        return own.choice([b"", b"\xff", b"bytes"])
    bits = 32 if field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32) else 64
    if field.cpp_type in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64):
        return own.choice([0, 1, 2**bits - 1, 2 ** (bits - 1)])
    return own.choice([0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))])


def mutated(own, payload):
    """A payload with bytes changed, cut off or added."""
    changed = bytearray(payload)
    for _ in range(own.randint(1, 3)):
        if changed:
            changed[own.randrange(len(changed))] = own.choice([0, 1, 8, 10, 11, 12, 127, 128, 255])
    return bytes(
        changed[: own.randint(len(changed) // 2, len(changed))] + own.choice([b"", b"", b"\xff", b"\x0b"])
    )


def main():
    """Print the runtime in one line, and what is read of standard input in another."""
    rows = []
    for data, payloads in json.load(sys.stdin):
        of = Schema(SchemaType.PROTOBUF_NATIVE, data.encode())
        decoder = formats.decoder(of, of, formats.column_type(of))
        values = pa.array(map(bytes.fromhex, payloads), pa.binary())
        found = decoder.decode(values, pa.nulls(len(values), pa.binary()))
        rows.append([found.column.to_pylist(), found.is_bad is not None and found.is_bad.tolist()])
    print(api_implementation.Type())  # noqa: T201 - what it is for
    print(rows)  # noqa: T201


if __name__ == "__main__":
    main()
