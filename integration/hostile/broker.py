"""Commands and streams of a broker, at random: any fields, any numbers, sizes that are mostly right."""

from __future__ import annotations

import struct
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from integration.hostile.wire import EXTREMES, Wire
from pulsar_spark.wire import pulsar_pb2 as pb

_TOPIC = "persistent://a/b/t"
_TYPES = [field.number for field in pb.BaseCommand.DESCRIPTOR.fields if field.message_type is not None]


def any_command(wire: Wire) -> pb.BaseCommand:
    """Any command, all or some of its fields set."""
    kind = wire.chance.choice(_TYPES)
    command = pb.BaseCommand()
    command.type = kind  # type: ignore[assignment]  # field and type have one number
    fill(wire, getattr(command, pb.BaseCommand.DESCRIPTOR.fields_by_number[kind].name), 0)
    return command


def fill(wire: Wire, message: Message, depth: int) -> None:
    """Set all or some of the fields of a message, and of those in it down to a depth of three."""
    chance = wire.chance
    message.SetInParent()
    for field in message.DESCRIPTOR.fields:
        if not field.is_required and chance.random() < 0.4:
            continue
        count = chance.choice((0, 1, 3)) if field.is_repeated else 1
        for _ in range(count):
            if field.message_type is not None:
                if depth < 3:
                    inner = getattr(message, field.name)
                    fill(wire, inner.add() if field.is_repeated else inner, depth + 1)
                continue
            value = _value(wire, field)
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)


def _value(wire: Wire, field: Any) -> Any:
    chance = wire.chance
    if field.type == FieldDescriptor.TYPE_ENUM:
        return chance.choice(list(field.enum_type.values_by_number))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return chance.random() < 0.5
    if field.type == FieldDescriptor.TYPE_STRING:
        texts = (
            "",
            "s3cret",
            "pulsar://h:1",
            "pulsar+ssl://[::1]:2",
            "persistent://a/b/t-partition-1",
            "é" * 50,
        )
        return chance.choice(texts)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return wire.text()
    bits = 32 if field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32) else 64
    signed = field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
    # Small ones are often those of requests, producers and consumers that there are.
    number = (chance.choice(EXTREMES) if chance.random() < 0.3 else chance.randrange(5)) % (1 << bits)
    return number - (1 << bits) if signed and number >> (bits - 1) else number


def any_frame(wire: Wire) -> bytes:
    """One frame: a command, damaged or not, maybe with a payload section; its sizes are mostly right."""
    if wire.chance.random() < 0.4:
        place = pb.MessageIdData(ledgerId=5, entryId=wire.chance.randrange(300))
        message = pb.CommandMessage(consumer_id=1, message_id=place)
        command, section = pb.BaseCommand(type=pb.BaseCommand.MESSAGE, message=message), wire.section()
    else:
        command, section = any_command(wire), b""
    body = command.SerializePartialToString()
    if wire.is_broken():
        body = wire.damaged(body)
    total, size = 4 + len(body) + len(section), len(body)
    if wire.is_broken():
        total, size = wire.chance.choice(((total + 1, size), (total, size + 1), (4, 0), (2**32 - 1, size)))
    return struct.pack(">II", total % 2**32, size) + body + section


def any_stream(wire: Wire) -> list[bytes]:
    """Some frames as they come off a socket, cut anywhere; one kind of frame may come often."""
    frames = [
        any_frame(wire) * wire.chance.choice((1, 1, 1, 9)) for _ in range(wire.chance.choice((1, 2, 5)))
    ]
    data = b"".join(frames)
    if wire.is_broken():
        data = wire.damaged(data)
    cuts = sorted(wire.chance.randrange(len(data) + 1) for _ in range(wire.chance.choice((0, 0, 1, 5))))
    return [data[first:last] for first, last in zip([0, *cuts], [*cuts, len(data)], strict=True)]
