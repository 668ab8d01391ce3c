"""The clients of a fake broker as it knows them: their commands, consumers and producers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import encode_command
from pulsar_spark.wire.wire_values import to_wire_id
from tests.fake_topics import FakeCursor, FakeTopic

if TYPE_CHECKING:
    from tests.fake_connection import FakeConnection

Type = pb.BaseCommand
# The request id of what a broker sends without being asked.
UNASKED = (1 << 64) - 1
COORDINATORS = "persistent://pulsar/system/transaction_coordinator_assign"

_ENTRIES_A_READ = 100
_FIELDS = pb.BaseCommand.DESCRIPTOR.fields_by_number  # a command's type is the number of its field


def body_of(command: pb.BaseCommand) -> Any:
    """What a command says."""
    return getattr(command, _FIELDS[command.type].name)


def command_of(kind: int, **fields: object) -> pb.BaseCommand:
    """A command of a type, with the fields of its body."""
    command = pb.BaseCommand(type=kind)  # type: ignore[arg-type]
    body = body_of(command)
    body.SetInParent()
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(body, name).extend(value)
        elif isinstance(value, Message):
            getattr(body, name).CopyFrom(value)
        elif isinstance(value, MessageId):
            getattr(body, name).CopyFrom(to_wire_id(value))
        elif value is not None:
            setattr(body, name, value)
    return command


def _in_32_bits(permits: int) -> int:
    return (permits + (1 << 31)) % (1 << 32) - (1 << 31)


@dataclass(slots=True, eq=False)
class FakeConsumer:
    """A consumer, which a broker sends entries to while there are permits.

    Attributes:
        permits: the balance: of the messages granted those that are left.
        granted: all that was granted.
        sent: the ids of the entries that were sent.
    """

    connection: FakeConnection
    id: int
    topic: FakeTopic
    subscription: str
    cursor: FakeCursor
    permits: int
    granted: int
    sent: list[MessageId]

    def dispatch(self) -> None:
        """Send what there is, as brokers do: entries are whole, so the balance may go below 0."""
        while self.permits > 0:
            entries = self.cursor.read(min(self.permits, _ENTRIES_A_READ))
            if entries is None:
                return
            for entry in entries:
                self.permits = _in_32_bits(self.permits - entry.permits)
                self.sent.append(entry.id)
                place = to_wire_id(entry.id)
                message = pb.CommandMessage(consumer_id=self.id, message_id=place)
                command = pb.BaseCommand(type=Type.MESSAGE, message=message)
                self.connection.write(encode_command(command, len(entry.section)) + entry.section)


@dataclass(slots=True, eq=False)
class FakeProducer:
    """A producer; one that is not ready waits until it has the topic for itself."""

    connection: FakeConnection
    id: int
    topic: FakeTopic
    name: str
    is_exclusive: bool
    request_id: int
    is_ready: bool = True
    schema_version: bytes | None = None
